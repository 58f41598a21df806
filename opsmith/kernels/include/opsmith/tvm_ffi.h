// Calls a function of a tvm-ffi module. tvm-ffi's headers need the C interface of its library
// alone, which is not linked: see library().
#pragma once

#define TVM_FFI_DLL __attribute__((visibility("hidden")))
#define TVM_FFI_DLL_EXPORT __attribute__((visibility("default")))

#include <dlfcn.h>
#include <opsmith/detail/show.h>
#include <opsmith/detail/sizes.h>
#include <opsmith/kernel.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <atomic>
#include <cstring>
#include <filesystem>

// The kernel takes the plain struct, whose tensors are DLPack's: it is compiled for no dtype.
#undef OPSMITH_RUN_
#define OPSMITH_RUN_(ns, op, device) op(ctx, *raw);

namespace opsmith::tvm_ffi {

namespace ffi = ::tvm::ffi;

// Returns the file of the name of `built_with` that lies beside this library, or else `built_with`.
inline std::string beside(const char* built_with) {
  static const char here = 0;
  Dl_info own;
  if (dladdr(&here, &own) == 0) return built_with;
  const auto name = std::filesystem::path(built_with).filename();
  const auto found = std::filesystem::path(own.dli_fname).replace_filename(name);
  return std::filesystem::exists(found) ? found.string() : built_with;
}

// Loads the library of the package tvm_ffi, if this process is a Python that has it. Python may
// switch to a thread that calls the kernel too, so no lock may be held here.
inline void load_pythons_library() {
  static std::atomic<bool> done = false;
  if (done) return;
  const auto python = [](const char* name) { return dlsym(RTLD_DEFAULT, name); };
  const auto running = reinterpret_cast<int (*)()>(python("Py_IsInitialized"));
  if (running != nullptr && running() != 0) {
    const int state = reinterpret_cast<int (*)()>(python("PyGILState_Ensure"))();
    reinterpret_cast<int (*)(const char*)>(python("PyRun_SimpleString"))(R"(exec('''
try:
    import ctypes, importlib.util, pathlib
    package = pathlib.Path(importlib.util.find_spec("tvm_ffi").origin).parent
    ctypes.CDLL(str(package / "lib" / "libtvm_ffi.so"), ctypes.RTLD_GLOBAL)
except Exception:
    pass  # there is none
''', {}))");
    reinterpret_cast<void (*)(int)>(python("PyGILState_Release"))(state);
  }
  done = true;
}

// Returns tvm-ffi's library: the one of this process, the one beside this library, or the one that
// this library was built with. A second one would end the process, as both register the same types.
inline void* library() {
  static void* const found = [] {
    // Modules that do not name the library find it among what is global.
    void* there = dlopen("libtvm_ffi.so", RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
    if (!there) there = dlopen(beside(OPSMITH_TVM_FFI_LIBRARY).c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (there) return there;
    throw std::runtime_error(
        detail::join("tvm-ffi's library does not load: ", dlerror(), ". Install apache-tvm-ffi"));
  }();
  return found;
}

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
    library();
    const auto load = ffi::Function::GetGlobalRequired("ffi.ModuleLoadFromFile");
    const auto find = ffi::Function::GetGlobalRequired("ffi.ModuleGetFunction");
    const std::string path = beside(file);
    const auto module = load.CallExpected<ffi::Any>(path);
    if (module.is_err()) {
      throw std::runtime_error(
          detail::join("its module does not load here: ", module.error().message(),
                       ". It has to lie beside the ", "kernel's library or at ", file,
                       ", compiled for this machine"));
    }
    const auto found = find.CallExpected<ffi::Optional<ffi::Function>>(module.value(), name, true);
    if (found.is_err() || !found.value().has_value()) {
      throw std::runtime_error(detail::join(path, " has no tvm-ffi function '", name,
                                            "' any more. Register the kernel again"));
    }
    function_ = *found.value();
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

// tvm-ffi's C interface, as far as its headers need it here.
#define OPSMITH_PASS_(result, name, parameters, arguments)                   \
  extern "C" __attribute__((weak)) result name parameters {                  \
    static void* const function = dlsym(opsmith::tvm_ffi::library(), #name); \
    return reinterpret_cast<decltype(&name)>(function) arguments;            \
  }
OPSMITH_PASS_(const TVMFFIByteArray*, TVMFFIBacktrace, (const char* a, int b, const char* c, int d),
              (a, b, c, d))
OPSMITH_PASS_(DLPackManagedTensorAllocator, TVMFFIEnvGetDLPackManagedTensorAllocator, (), ())
OPSMITH_PASS_(int, TVMFFIEnvSetDLPackManagedTensorAllocator,
              (DLPackManagedTensorAllocator a, int b, DLPackManagedTensorAllocator* c), (a, b, c))
OPSMITH_PASS_(int, TVMFFIEnvSetStream,
              (int32_t a, int32_t b, TVMFFIStreamHandle c, TVMFFIStreamHandle* d), (a, b, c, d))
OPSMITH_PASS_(void, TVMFFIErrorMoveFromRaised, (TVMFFIObjectHandle * a), (a))
OPSMITH_PASS_(int, TVMFFIFunctionGetGlobal, (const TVMFFIByteArray* a, TVMFFIObjectHandle* b),
              (a, b))
OPSMITH_PASS_(const TVMFFITypeInfo*, TVMFFIGetTypeInfo, (int32_t a), (a))
#undef OPSMITH_PASS_
