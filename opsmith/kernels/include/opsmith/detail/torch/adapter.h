// The common parts of adapters for PyTorch: owning types for PyTorch's C shims (its stable ABI),
// tensor arguments, results, and the Context of a call.
#pragma once

#include <opsmith/detail/adapter.h>

#include <optional>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/c/shim.h>

// The function exists from PyTorch 2.13 on; it is null in the earlier versions that libraries
// support.
extern "C" __attribute__((weak)) AOTITorchError torch_stream_native_handle(StreamHandle stream,
                                                                           void** handle);

#define OPSMITH_SHIM(call)                                \
  do {                                                    \
    if ((call) != 0) [[unlikely]]                         \
      throw std::runtime_error("PyTorch refused " #call); \
  } while (false)

namespace opsmith::aten {

// PyTorch's numbers for dtypes and devices are read once at run time: they are not part of its ABI.
struct Numbers {
  struct Device {
    int32_t torch;
    int32_t dlpack;
  };
  DLDataType dtypes[64];
#define OPSMITH_DEVICE(name, number, key) {aoti_torch_device_type_##name(), number},
  const std::vector<Device> devices = {
      OPSMITH_DEVICES(OPSMITH_DEVICE){OPSMITH_EXTENSION_TORCH_TYPE(), device_extension}};
#undef OPSMITH_DEVICE

  Numbers() {
    for (DLDataType& dtype : dtypes) dtype = {255, 0, 1};
#define OPSMITH_NUMBER(position, type, code, bits, name) set(aoti_torch_dtype_##name(), code, bits);
    OPSMITH_DTYPES(OPSMITH_NUMBER)
#undef OPSMITH_NUMBER
    set(aoti_torch_dtype_complex32(), 5, 32);
    set(aoti_torch_dtype_float8_e4m3fnuz(), 11, 8);
    set(aoti_torch_dtype_float8_e5m2fnuz(), 13, 8);
  }
  void set(int32_t number, uint8_t code, uint8_t bits) {
    if (number >= 0 && number < 64) dtypes[number] = {code, bits, 1};
  }
  int32_t torch_dtype(DLDataType dtype) const {
    for (int32_t i = 0; i < 64; ++i) {
      if (detail::dtype_key(dtypes[i]) == detail::dtype_key(dtype)) return i;
    }
    throw std::runtime_error(detail::join("PyTorch has no ", detail::dtype_name(dtype)));
  }
  int32_t torch_device(int32_t dlpack) const {
    for (const Device& device : devices) {
      if (device.dlpack == dlpack) return device.torch;
    }
    return OPSMITH_EXTENSION_TORCH_TYPE();
  }
  int32_t dlpack_device(int32_t torch) const {
    for (const Device& device : devices) {
      if (device.torch == torch) return device.dlpack;
    }
    return device_extension;
  }
};

inline const Numbers& numbers() {
  static const Numbers table;
  return table;
}

// Do not record copies inside a kernel in the autograd graph.
class NoGrad {
 public:
  NoGrad() : before_(aoti_torch_grad_mode_is_enabled()) { aoti_torch_grad_mode_set_enabled(false); }
  ~NoGrad() { aoti_torch_grad_mode_set_enabled(before_); }
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};

// An owned reference to a tensor, or to none.
class Handle {
 public:
  Handle() = default;
  explicit Handle(AtenTensorHandle handle) : handle_(handle) {}
  Handle(Handle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Handle() {
    if (handle_ != nullptr) aoti_torch_delete_tensor_object(handle_);
  }

  explicit operator bool() const { return handle_ != nullptr; }
  AtenTensorHandle get() const { return handle_; }
  AtenTensorHandle* out() { return &handle_; }
  AtenTensorHandle release() { return std::exchange(handle_, nullptr); }

 private:
  AtenTensorHandle handle_ = nullptr;
};

// Whether there is a tensor: None arrives as an undefined tensor.
inline bool is_defined(AtenTensorHandle handle) {
  bool defined = false;
  if (handle != nullptr) OPSMITH_SHIM(aoti_torch_is_defined(handle, &defined));
  return defined;
}

inline void describe(AtenTensorHandle handle, bool written, DLTensor& tensor) {
  int64_t ndim = 0;
  int32_t dtype = 0;
  int32_t device = 0;
  OPSMITH_SHIM(aoti_torch_get_dim(handle, &ndim));
  OPSMITH_SHIM(aoti_torch_get_sizes(handle, &tensor.shape));
  OPSMITH_SHIM(aoti_torch_get_strides(handle, &tensor.strides));
  OPSMITH_SHIM(aoti_torch_get_dtype(handle, &dtype));
  OPSMITH_SHIM(aoti_torch_get_device_type(handle, &device));
  OPSMITH_SHIM(aoti_torch_get_device_index(handle, &tensor.device.device_id));
  if (written) {
    OPSMITH_SHIM(torch_get_mutable_data_ptr(handle, &tensor.data));
  } else {
    const void* data = nullptr;
    OPSMITH_SHIM(torch_get_const_data_ptr(handle, &data));
    tensor.data = const_cast<void*>(data);
  }
  tensor.ndim = static_cast<int32_t>(ndim);
  tensor.byte_offset = 0;
  const Numbers& table = numbers();
  tensor.dtype = dtype >= 0 && dtype < 64 ? table.dtypes[dtype] : DLDataType{255, 0, 1};
  tensor.device.device_type = table.dlpack_device(device);
  if (tensor.device.device_type == device_cpu) tensor.device.device_id = 0;
}

inline Handle allocate(const int64_t* sizes, int32_t ndim, DLDataType dtype, DLDevice device) {
  if (ndim > detail::max_dims) throw std::runtime_error("a result has more than 64 dimensions");
  int64_t strides[detail::max_dims];
  int64_t stride = 1;
  for (int32_t i = ndim - 1; i >= 0; --i) {
    strides[i] = stride;
    if (sizes[i] > 1 && __builtin_mul_overflow(stride, sizes[i], &stride)) {
      throw std::runtime_error("a result has more elements than fit 64 bits");
    }
  }
  const Numbers& table = numbers();
  Handle result;
  if (aoti_torch_empty_strided(ndim, sizes, strides, table.torch_dtype(dtype),
                               table.torch_device(device.device_type), device.device_id,
                               result.out()) != 0) {
    throw std::runtime_error(
        detail::join("PyTorch could not allocate a tensor of shape ", detail::show(sizes, ndim)));
  }
  return result;
}

// A tensor of the caller's, or none, and a contiguous copy if the kernel needs it.
class Given {
 public:
  Given(AtenTensorHandle tensor = nullptr) : tensor_(tensor) {}

  bool describe(bool written, DLTensor& view) const {
    if (!is_defined(tensor_)) return false;
    aten::describe(tensor_, written, view);
    return true;
  }
  // Refuses a tensor whose elements share memory, or whose storage has become too small.
  void require_writable(const char* op, const char* name, int64_t item,
                        const DLTensor& view) const {
    detail::require_own_elements(op, name, item, view);
    int64_t offset = 0;
    int64_t bytes = 0;
    OPSMITH_SHIM(aoti_torch_get_storage_offset(tensor_, &offset));
    OPSMITH_SHIM(aoti_torch_get_storage_size(tensor_, &bytes));
    if (!detail::is_within(view, offset, bytes)) [[unlikely]] {
      throw call_error(detail::join(op, ": argument '", detail::item_name(name, item),
                                    "' has a storage that was resized to less than the tensor "
                                    "takes."));
    }
  }
  void copy(bool written, DLTensor& view, const char* name) {
    if (copy_) return;
    try {
      copy_ = allocate(view.shape, view.ndim, view.dtype, view.device);
    } catch (const std::exception& error) {
      throw std::runtime_error(
          detail::join("argument '", name, "' needs a contiguous copy: ", error.what()));
    }
    const NoGrad guard;
    OPSMITH_SHIM(aoti_torch_copy_(copy_.get(), tensor_, 0));
    aten::describe(copy_.get(), written, view);
  }
  void give_back() const {
    if (!copy_) return;
    const NoGrad guard;
    OPSMITH_SHIM(aoti_torch_copy_(tensor_, copy_.get(), 0));
  }

 private:
  AtenTensorHandle tensor_;
  Handle copy_;
};

template <bool written>
using TensorArgument = detail::Tensors<written, Given, false>;
template <bool written>
using TensorListArgument = detail::Tensors<written, Given, true>;

// The Context of one call in PyTorch.
class Call : public detail::CallContext {
 public:
  explicit Call(DLDevice device) : device_(device) {
    context_.num_threads = [](void*) {
      uint32_t count = 1;
      OPSMITH_SHIM(torch_get_num_threads(&count));
      return static_cast<int32_t>(count);
    };
    if (device.device_type == device_cpu) {
      context_.parallel_for = [](void*, int64_t begin, int64_t end, int64_t grain,
                                 void (*body)(int64_t, int64_t, void*), void* state) {
        OPSMITH_SHIM(torch_parallel_for(begin, end, grain, body, state));
      };
    } else {
      guard_.emplace(device.device_id);
      context_.stream = &stream;
      context_.scratch = &device_scratch;
    }
  }
  DLDevice device() const { return device_; }

 private:
  static Call& of(void* self) { return *static_cast<Call*>(static_cast<CallContext*>(self)); }

  // Allocates a tensor of bytes: its allocator knows when the stream has finished with it.
  static void* device_scratch(void* self, uint64_t bytes) {
    if (bytes > INT64_MAX) return nullptr;
    Call& call = of(self);
    const int64_t size = static_cast<int64_t>(bytes);
    Handle tensor = allocate(&size, 1, {1, 8, 1}, call.device_);
    void* data = nullptr;
    OPSMITH_SHIM(torch_get_mutable_data_ptr(tensor.get(), &data));
    const std::lock_guard<std::mutex> lock(call.mutex_);
    call.device_scratch_.push_back(std::move(tensor));
    return data;
  }
  static void* stream(void* self) {
    const DLDevice device = of(self).device_;
    void* result = nullptr;
#ifdef OPSMITH_STREAM
    OPSMITH_SHIM(OPSMITH_STREAM(device.device_id, &result));
#else
    if (torch_stream_native_handle == nullptr) {
      throw std::runtime_error(detail::join("ctx.stream(): PyTorch gives the stream of ",
                                            detail::show(device), " from 2.13 on"));
    }
    StreamHandle stream = nullptr;
    OPSMITH_SHIM(aoti_torch_get_current_stream(device.device_id, &stream));
    const bool given = torch_stream_native_handle(stream, &result) == 0;
    aoti_torch_delete_stream(stream);
    if (!given) {
      throw std::runtime_error(detail::join(
          "ctx.stream(): the backend of ", detail::show(device),
          " tells PyTorch no native handle of its streams; ask its own library for the stream"));
    }
#endif
    return result;
  }

  DLDevice device_;
  std::optional<torch::stable::accelerator::DeviceGuard> guard_;
  std::vector<Handle> device_scratch_;
};

// A result of a call.
class Result {
 public:
  Result(const Call& call, int32_t) : device_(call.device()) {}

  const DLTensor* allocate(const int64_t* sizes, int32_t ndim, DLDataType dtype) {
    handle_ = aten::allocate(sizes, ndim, dtype, device_);
    describe(handle_.get(), true, view_);
    return &view_;
  }
  bool allocated() const { return static_cast<bool>(handle_); }
  AtenTensorHandle release() { return handle_.release(); }

 private:
  DLDevice device_;
  Handle handle_;
  DLTensor view_;
};

}  // namespace opsmith::aten
