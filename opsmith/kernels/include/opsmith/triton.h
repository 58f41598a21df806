// Launches kernels that Triton compiled ahead of time, through the CUDA driver.
#pragma once

#include <opsmith/detail/cuda_driver.h>
#include <opsmith/detail/sizes.h>
#include <opsmith/kernel.h>

#include <array>
#include <atomic>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace opsmith::triton {

using cuda::Driver;

// The value of a parameter of the kernel. Other parameters are compiled in.
struct Argument {
  enum class Kind { pointer, integer, real, boolean } kind;
  union {
    const void* pointer;
    int64_t integer;
    double real;
    bool boolean;
  };

  static Argument of(const void* value) { return {Kind::pointer, {.pointer = value}}; }
  static Argument of_integer(int64_t value) { return {Kind::integer, {.integer = value}}; }
  static Argument of_real(double value) { return {Kind::real, {.real = value}}; }
  static Argument of_boolean(bool value) { return {Kind::boolean, {.boolean = value}}; }

  bool divisible() const {
    return kind == Kind::pointer ? reinterpret_cast<uintptr_t>(pointer) % 16 == 0
                                 : kind == Kind::integer && integer % 16 == 0;
  }
};

// The kernel's code for one architecture.
struct Image {
  int architecture;  // 90 for sm_90
  const unsigned char* code;
  const char* name;
  unsigned warps;
  unsigned shared_bytes;
  unsigned further_pointers;  // that Triton passes and this kernel does not use
};

// The kernel compiled under certain assumptions.
struct Variant {
  uint64_t divisible;  // a bit for each argument that must be a multiple of 16
  bool narrow;         // integers are passed with 32 bits
  std::span<const Image> images;

  bool fits(std::span<const Argument> arguments) const {
    for (size_t i = 0; i < arguments.size(); ++i) {
      const Argument& one = arguments[i];
      if ((divisible >> i & 1) != 0 && !one.divisible()) return false;
      if (narrow && one.kind == Argument::Kind::integer &&
          one.integer != static_cast<int32_t>(one.integer)) {
        return false;
      }
    }
    return true;
  }
};

namespace detail {

using opsmith::detail::join;

// The code in `images` that runs on a device: the latest architecture of its generation.
inline const Image& image_for(std::span<const Image> images, int device) {
  const Driver& driver = Driver::get();
  int major = 0;
  int minor = 0;
  driver.check(driver.device_attribute(&major, 75, device), "cuDeviceGetAttribute");
  driver.check(driver.device_attribute(&minor, 76, device), "cuDeviceGetAttribute");
  const Image* found = nullptr;
  std::string there;
  for (const Image& image : images) {
    there += join(there.empty() ? "sm_" : ", sm_", image.architecture);
    const bool runs = image.architecture / 10 == major && image.architecture % 10 <= minor;
    if (runs && (found == nullptr || found->architecture < image.architecture)) found = &image;
  }
  if (found == nullptr) {
    throw std::runtime_error(join("the Triton kernel was compiled for ", there,
                                  ", and this GPU is an sm_", major * 10 + minor,
                                  ": build it again with OPSMITH_CUDA_ARCHS"));
  }
  return *found;
}

struct Loaded {
  const Image* image;
  Driver::Function function;
};

// The code in `images` for a device; loaded once, and kept.
inline Loaded loaded(std::span<const Image> images, int device) {
  struct Entry {
    const Image* images;
    int device;
    Loaded what;
  };
  static std::mutex mutex;
  static std::vector<Entry> entries;
  const std::lock_guard lock(mutex);
  for (const Entry& entry : entries) {
    if (entry.images == images.data() && entry.device == device) return entry.what;
  }
  const Driver& driver = Driver::get();
  const Image& image = image_for(images, device);
  void* module = nullptr;
  Loaded what{&image, nullptr};
  driver.check(driver.load(&module, image.code), join("loading the Triton kernel ", image.name));
  driver.check(driver.find(&what.function, module, image.name), image.name);
  if (image.shared_bytes > (48u << 10)) {
    constexpr int max_dynamic_shared_bytes = 8;
    driver.check(driver.set_attribute(what.function, max_dynamic_shared_bytes,
                                      static_cast<int>(image.shared_bytes)),
                 join(image.name, " with ", image.shared_bytes, " bytes of shared memory"));
  }
  entries.push_back({images.data(), device, what});
  return what;
}

}  // namespace detail

// Launches the first of `variants` that fits the arguments; the last one always does.
inline void launch(const Context& ctx, std::span<const Variant> variants,
                   std::array<int64_t, 3> grid, std::span<const Argument> arguments) {
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) return;
  constexpr std::array<int64_t, 3> most = {0x7fffffff, 0xffff, 0xffff};
  for (size_t i = 0; i < 3; ++i) {
    if (grid[i] < 0 || grid[i] > most[i]) {
      ctx.fail("the grid (", grid[0], ", ", grid[1], ", ", grid[2],
               ") is not one that CUDA has: at most ", most[0], ", ", most[1], " and ", most[2],
               " programs");
    }
  }
  const void* memory = nullptr;
  for (const Argument& one : arguments) {
    if (memory == nullptr && one.kind == Argument::Kind::pointer) memory = one.pointer;
  }
  const cuda::OnDevice current(memory);
  for (const Variant& variant : variants) {
    if (!variant.fits(arguments)) continue;
    const detail::Loaded kernel = detail::loaded(variant.images, current.device());
    union Value {
      const void* pointer;
      int64_t wide;
      int32_t narrow;
      float real;
      uint8_t boolean;
    };
    constexpr size_t most_arguments = 64;
    std::array<Value, most_arguments> values{};
    std::array<void*, most_arguments> parameters{};
    size_t count = 0;
    for (const Argument& one : arguments) {
      Value& value = values[count];
      switch (one.kind) {
        case Argument::Kind::pointer:
          value.pointer = one.pointer;
          break;
        case Argument::Kind::integer:
          if (variant.narrow) {
            value.narrow = static_cast<int32_t>(one.integer);
          } else {
            value.wide = one.integer;
          }
          break;
        case Argument::Kind::real:
          value.real = static_cast<float>(one.real);
          break;
        case Argument::Kind::boolean:
          value.boolean = one.boolean ? 1 : 0;
          break;
      }
      parameters[count] = &values[count];
      ++count;
    }
    for (unsigned i = 0; i < kernel.image->further_pointers; ++i, ++count) {
      parameters[count] = &values[count];
    }
    const Driver& driver = Driver::get();
    const int error = driver.launch(kernel.function, static_cast<unsigned>(grid[0]),
                                    static_cast<unsigned>(grid[1]), static_cast<unsigned>(grid[2]),
                                    32 * kernel.image->warps, 1, 1, kernel.image->shared_bytes,
                                    ctx.stream(), parameters.data(), nullptr);
    driver.check(error, detail::join("the launch of the Triton kernel ", kernel.image->name,
                                     " with grid (", grid[0], ", ", grid[1], ", ", grid[2], ")"));
    return;
  }
  ctx.fail("no variant of the Triton kernel takes these arguments");
}

}  // namespace opsmith::triton
