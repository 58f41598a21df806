// The services of the runtime that calls a kernel: threads, memory, a stream, results.
#pragma once

#include <opsmith/detail/floating_point.h>
#include <opsmith/tensor.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <type_traits>

namespace opsmith {

// The runtime of this call.
class Context {
 public:
  explicit Context(const opsmith_context* context) : context_(context) {}

  // Calls body(begin, end) on pieces of [begin, end), on the runtime's threads. `grain` is the size
  // of a piece that is worth a thread: pieces have about that size or more, and results must not
  // depend on where they begin and end. Every thread rounds as the calling one, and keeps or
  // flushes subnormal numbers as it does. An exception in a piece is rethrown by parallel_for;
  // pieces not yet begun are then skipped.
  template <typename Body>
  void parallel_for(int64_t begin, int64_t end, int64_t grain, Body&& body) const {
    if (begin >= end) return;
    grain = std::max<int64_t>(grain, 1);
    const bool whole = end - begin <= grain && !wants_every_loop();
    if (whole || context_->parallel_for == nullptr) {
      body(begin, end);
      return;
    }
    struct State {
      std::remove_reference_t<Body>* body;
      detail::FloatingPoint::Bits computing = detail::FloatingPoint::read();
      std::atomic<bool> failed{false};
      std::exception_ptr error;
    } state;
    state.body = &body;
    context_->parallel_for(
        context_->self, begin, end, grain,
        [](int64_t first, int64_t last, void* opaque) {
          State& shared = *static_cast<State*>(opaque);
          if (shared.failed.load(std::memory_order_relaxed)) return;
          try {
            const detail::ComputeAs computing(shared.computing);
            (*shared.body)(first, last);
          } catch (...) {
            if (!shared.failed.exchange(true)) shared.error = std::current_exception();
          }
        },
        &state);
    if (state.error) std::rethrow_exception(state.error);
  }

  int num_threads() const { return context_->num_threads(context_->self); }

  // Uninitialised memory on the call's device, freed after the call.
  template <typename T>
  std::span<T> scratch(int64_t count) const {
    static_assert(std::is_trivially_destructible_v<T>, "scratch memory is freed, not destroyed");
    if (count <= 0) return {};
    void* memory =
        static_cast<uint64_t>(count) > UINT64_MAX / sizeof(T)
            ? nullptr
            : context_->scratch(context_->self, static_cast<uint64_t>(count) * sizeof(T));
    if (memory == nullptr) fail("no memory for ", count, " elements of scratch");
    return {static_cast<T*>(memory), static_cast<size_t>(count)};
  }

  // The device's current stream, in the type of the device's library (a cudaStream_t, an
  // aclrtStream); null on the CPU. Fails where PyTorch cannot tell.
  void* stream() const {
    return context_->stream == nullptr ? nullptr : context_->stream(context_->self);
  }

  // Ends the call with an error: "namespace::name: " and the parts, one after the other.
  template <typename... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw std::runtime_error(detail::join(parts...));
  }

  const opsmith_context* raw() const { return context_; }

 private:
  bool wants_every_loop() const {
    return context_->size >= sizeof(opsmith_context) && context_->every_loop != 0;
  }

  const opsmith_context* context_;
};

// A result whose size the kernel computes (`data_dependent` in the declaration), or whose shape is
// not declared. Call `allocate` exactly once for each.
class AnyOutput {
 public:
  AnyOutput(const Context& context, int32_t result) : context_(context.raw()), result_(result) {}

  template <typename T>
  Tensor<T> allocate(std::span<const int64_t> sizes) const {
    DLTensor tensor;
    if (context_->allocate(context_->self, result_, detail::dtype_traits<T>::value,
                           static_cast<int32_t>(sizes.size()), sizes.data(), &tensor) != 0) {
      throw allocation_failed();
    }
    return Tensor<T>(&tensor);
  }
  template <typename T>
  Tensor<T> allocate(std::initializer_list<int64_t> sizes) const {
    return allocate<T>(std::span<const int64_t>(sizes.begin(), sizes.size()));
  }

  // The runtime already has the reason.
  struct allocation_failed {};

 private:
  const opsmith_context* context_;
  int32_t result_;
};

template <typename T>
class Output {
 public:
  Output(const Context& context, int32_t result) : output_(context, result) {}

  Tensor<T> allocate(std::span<const int64_t> sizes) const {
    return output_.template allocate<T>(sizes);
  }
  Tensor<T> allocate(std::initializer_list<int64_t> sizes) const {
    return output_.template allocate<T>(sizes);
  }

 private:
  AnyOutput output_;
};

}  // namespace opsmith
