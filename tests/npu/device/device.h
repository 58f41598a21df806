// What a kernel's source sees of the device that the tests bring: a stream, which runs later, on a
// thread of its own, what is launched on it, and the way from an address to the memory behind it.
//
//     void add(const opsmith::Context& ctx, const my_ops::add_args<T>& a) {
//       device::launch(ctx.stream(), [x = a.x.data(), out = a.out.data(), n = a.N](device::Core
//       core) {
//         for (int64_t i = 0; i < n; ++i) core.at(out)[i] = core.at(x)[i] + 1;
//       });
//     }
//
// An address of the device is one that the host can neither read nor write: it is killed if it
// tries. Only a Core, which only launched code is given, leads to the memory.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

namespace device {

// How far the memory is from the address by which it is known.
inline constexpr uintptr_t distance = uintptr_t{1} << 38;

class Core {
 public:
  template <typename T>
  T* at(T* address) const {
    if (address == nullptr) return nullptr;
    return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(address) + distance);
  }

 private:
  friend struct Stream;
  Core() = default;
};

// What a native stream handle points at.
struct Stream {
  void (*enqueue)(Stream* self, void (*run)(void*), void* state);

  template <typename Body>
  void launch(Body&& body) {
    using Kept = std::decay_t<Body>;
    enqueue(
        this,
        [](void* state) {
          const std::unique_ptr<Kept> kept(static_cast<Kept*>(state));
          (*kept)(Core());
        },
        new Kept(std::forward<Body>(body)));
  }
};

template <typename Body>
void launch(void* stream, Body&& body) {
  static_cast<Stream*>(stream)->launch(std::forward<Body>(body));
}

}  // namespace device
