// The CUDA driver, for code that is neither compiled by nvcc nor linked with CUDA's runtime. It is
// opened when a call first needs it, so that no library has to link it.
#pragma once

#include <dlfcn.h>
#include <opsmith/detail/text.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace opsmith::cuda {

// The functions of the driver that are needed, with the driver's numeric constants.
class Driver {
 public:
  using Function = void*;

  static const Driver& get() {
    static const Driver driver;
    return driver;
  }

  int (*get_current)(void**) = nullptr;
  int (*get_device)(int*) = nullptr;
  int (*push)(void*) = nullptr;
  int (*pop)(void**) = nullptr;
  int (*retain_primary)(void**, int) = nullptr;
  int (*device_attribute)(int*, int, int) = nullptr;
  int (*pointer_attribute)(void*, int, uint64_t) = nullptr;
  int (*copy)(uint64_t to, uint64_t from, size_t bytes, void* stream) = nullptr;
  int (*load)(void**, const void*) = nullptr;
  int (*find)(Function*, void*, const char*) = nullptr;
  int (*set_attribute)(Function, int, int) = nullptr;
  int (*launch)(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                void*, void**, void**) = nullptr;

  // Throws if the driver returned an error.
  void check(int error, const std::string& what) const {
    if (error == 0) return;
    const char* name = nullptr;
    const char* text = nullptr;
    error_name_(error, &name);
    error_text_(error, &text);
    throw std::runtime_error(detail::join(what, ": ", name == nullptr ? "an unknown error" : name,
                                          ", ", text == nullptr ? "" : text));
  }

 private:
  Driver() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      throw std::runtime_error(
          detail::join("needs the CUDA driver, and it does not load: ", dlerror()));
    }
    const auto find_symbol = [library](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      if (function == nullptr) {
        throw std::runtime_error(detail::join("the CUDA driver here has no ", name));
      }
    };
    int (*init)(unsigned) = nullptr;
    find_symbol(init, "cuInit");
    find_symbol(error_name_, "cuGetErrorName");
    find_symbol(error_text_, "cuGetErrorString");
    find_symbol(get_current, "cuCtxGetCurrent");
    find_symbol(get_device, "cuCtxGetDevice");
    find_symbol(push, "cuCtxPushCurrent_v2");
    find_symbol(pop, "cuCtxPopCurrent_v2");
    find_symbol(retain_primary, "cuDevicePrimaryCtxRetain");
    find_symbol(device_attribute, "cuDeviceGetAttribute");
    find_symbol(pointer_attribute, "cuPointerGetAttribute");
    find_symbol(copy, "cuMemcpyDtoDAsync_v2");
    find_symbol(load, "cuModuleLoadData");
    find_symbol(find, "cuModuleGetFunction");
    find_symbol(set_attribute, "cuFuncSetAttribute");
    find_symbol(launch, "cuLaunchKernel");
    check(init(0), "cuInit");
  }

  int (*error_name_)(int, const char**) = nullptr;
  int (*error_text_)(int, const char**) = nullptr;
};

// Makes the device of a tensor current.
class OnDevice {
 public:
  explicit OnDevice(const void* memory) {
    const Driver& driver = Driver::get();
    constexpr int device_ordinal = 9;
    driver.check(
        driver.pointer_attribute(&device_, device_ordinal, reinterpret_cast<uint64_t>(memory)),
        "a tensor's device");
    void* context = nullptr;
    int current = -1;
    driver.check(driver.get_current(&context), "cuCtxGetCurrent");
    if (context != nullptr) driver.check(driver.get_device(&current), "cuCtxGetDevice");
    if (context != nullptr && current == device_) return;
    // The tensor's allocator retains the primary context, so this code may retain it, too.
    driver.check(driver.retain_primary(&context, device_), "cuDevicePrimaryCtxRetain");
    driver.check(driver.push(context), "cuCtxPushCurrent");
    pushed_ = true;
  }
  ~OnDevice() {
    void* context = nullptr;
    if (pushed_) Driver::get().pop(&context);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  int device() const { return device_; }

 private:
  int device_ = 0;
  bool pushed_ = false;
};

}  // namespace opsmith::cuda
