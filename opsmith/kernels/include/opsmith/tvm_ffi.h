// Calls a function of a tvm-ffi module. tvm-ffi's headers need the C interface of its library
// alone.
#pragma once

#include <dlfcn.h>
#include <opsmith/detail/show.h>
#include <opsmith/detail/sizes.h>
#include <opsmith/kernel.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <cstring>
#include <filesystem>

// The kernel takes the plain struct, whose tensors are DLPack's: it is compiled for no dtype.
#undef OPSMITH_RUN_
#define OPSMITH_RUN_(ns, op, device) op(ctx, *raw);

namespace opsmith::tvm_ffi {

namespace ffi = ::tvm::ffi;

// An argument as tvm-ffi takes it; None where it is absent.
inline ffi::AnyView of(const DLTensor* tensor) {
  if (tensor == nullptr) return nullptr;
  return reinterpret_cast<::DLTensor*>(const_cast<DLTensor*>(tensor));
}
inline ffi::AnyView of(int64_t value) { return value; }
inline ffi::AnyView of(double value) { return value; }
inline ffi::AnyView of(uint8_t value) { return value != 0; }
inline ffi::Any of(raw_string text) {
  if (text.data == nullptr) return nullptr;
  return ffi::String(text.data, static_cast<size_t>(text.size));
}
template <typename Raw>
  requires requires(Raw raw) { raw.present; }
ffi::AnyView of(Raw raw) {
  return raw.present ? of(raw.value) : nullptr;
}

// Gives memory on the host to a function that asks tvm-ffi for it.
inline int allocate(::DLTensor* like, DLManagedTensorVersioned** made, void* self,
                    void (*fail)(void*, const char*, const char*)) {
  struct Memory {
    std::align_val_t alignment{64};
    void AllocData(::DLTensor* one) { one->data = operator new(ffi::GetDataSize(*one), alignment); }
    void FreeData(::DLTensor* one) { operator delete(one->data, alignment); }
  };
  if (like->device.device_type != kDLCPU) {
    fail(self, "RuntimeError", "no memory of this device was given to tvm-ffi");
    return -1;
  }
  const ffi::ShapeView shape(like->shape, static_cast<size_t>(like->ndim));
  *made = ffi::Tensor::FromNDAlloc(Memory(), shape, like->dtype, like->device).ToDLPackVersioned();
  return 0;
}

// Copies a returned tensor to the result at `position`, which is not there yet if it has any size.
inline void take(const Context& ctx, const ffi::Tensor& given, int32_t position,
                 const DLTensor* result) {
  const auto& from = reinterpret_cast<const DLTensor&>(*given.GetDLTensorPtr());
  DLTensor to;
  if (result != nullptr) {
    to = *result;
  } else if (ctx.raw()->allocate(ctx.raw()->self, position, from.dtype, from.ndim, from.shape,
                                 &to) != 0) {
    throw AnyOutput::allocation_failed();
  }
  const auto show = [](const DLTensor& tensor) {
    return detail::join(detail::dtype_name(tensor.dtype), detail::show(tensor.shape, tensor.ndim));
  };
  if (show(from) != show(to) || !given.IsContiguous()) {
    ctx.fail("result ", position, " was returned as ", show(from),
             given.IsContiguous() ? "" : ", which is not contiguous", "; expected ", show(to));
  }
  std::memcpy(to.data, given.data_ptr(), ffi::GetDataSize(given));
}

// A function of the module that lies beside this library, or else of `file`.
class Function {
 public:
  Function(const char* file, const char* name) : name_(name) {
    // A module that does not name libtvm_ffi.so itself finds it among what is global.
    dlopen("libtvm_ffi.so", RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
    static const char here = 0;
    Dl_info own;
    std::filesystem::path path = file;
    if (dladdr(&here, &own) != 0) {
      const auto beside = std::filesystem::path(own.dli_fname).replace_filename(path.filename());
      if (std::filesystem::exists(beside)) path = beside;
    }
    const auto load = ffi::Function::GetGlobalRequired("ffi.ModuleLoadFromFile");
    const auto find = ffi::Function::GetGlobalRequired("ffi.ModuleGetFunction");
    const auto module = value(load.CallExpected<ffi::Any>(path.string()));
    function_ = value(find.CallExpected<ffi::Function>(module, name, true));
  }

  // Calls the function. An exception of its C++ runtime, which may be another, does not get here.
  template <typename Value, typename... Given>
  Value call(const Context& ctx, DLDevice device, const Given&... given) const {
    if (device.device_type == device_cpu) {
      if (TVMFFIEnvGetDLPackManagedTensorAllocator() == nullptr) {
        TVMFFIEnvSetDLPackManagedTensorAllocator(&allocate, 0, nullptr);
      }
      return value(function_.CallExpected<Value>(given...));
    }
    TVMFFIStreamHandle before = nullptr;
    TVMFFIEnvSetStream(device.device_type, device.device_id, ctx.stream(), &before);
    auto returned = function_.CallExpected<Value>(given...);
    TVMFFIEnvSetStream(device.device_type, device.device_id, before, nullptr);
    return value(std::move(returned));
  }

 private:
  template <typename Value>
  Value value(ffi::Expected<Value>&& made) const {
    if (made.is_ok()) [[likely]]
      return std::move(made).value();
    const ffi::Error error = made.error();
    throw std::runtime_error(detail::join("tvm-ffi function '", name_, "' raised ", error.kind(),
                                          ": ", error.message()));
  }

  const char* name_;
  ffi::Function function_;  // keeps the module loaded
};

}  // namespace opsmith::tvm_ffi
