// What the generated PyTorch adapters are made of: PyTorch's C shims (its stable ABI) behind a few
// owning types, and the Context of a call in PyTorch.
#pragma once

#include <opsmith/detail/values.h>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/c/shim.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

#define OPSMITH_SHIM(call)                                \
  do {                                                    \
    if ((call) != 0) [[unlikely]]                         \
      throw std::runtime_error("PyTorch refused " #call); \
  } while (false)

namespace opsmith::adapter {

using detail::Sizes;

// PyTorch's numbers for dtypes and devices are asked for once: they are not part of its ABI.
struct Numbers {
  DLDataType dtypes[64];
  int32_t cpu = aoti_torch_device_type_cpu();
  int32_t cuda = aoti_torch_device_type_cuda();
  int32_t extension = aoti_torch_device_type_privateuse1();

  Numbers() {
    for (DLDataType& dtype : dtypes) dtype = {255, 0, 1};
    set(aoti_torch_dtype_bool(), 6, 8);
    set(aoti_torch_dtype_uint8(), 1, 8);
    set(aoti_torch_dtype_uint16(), 1, 16);
    set(aoti_torch_dtype_uint32(), 1, 32);
    set(aoti_torch_dtype_uint64(), 1, 64);
    set(aoti_torch_dtype_int8(), 0, 8);
    set(aoti_torch_dtype_int16(), 0, 16);
    set(aoti_torch_dtype_int32(), 0, 32);
    set(aoti_torch_dtype_int64(), 0, 64);
    set(aoti_torch_dtype_float16(), 2, 16);
    set(aoti_torch_dtype_bfloat16(), 4, 16);
    set(aoti_torch_dtype_float32(), 2, 32);
    set(aoti_torch_dtype_float64(), 2, 64);
    set(aoti_torch_dtype_complex32(), 5, 32);
    set(aoti_torch_dtype_complex64(), 5, 64);
    set(aoti_torch_dtype_complex128(), 5, 128);
    set(aoti_torch_dtype_float8_e4m3fn(), 10, 8);
    set(aoti_torch_dtype_float8_e4m3fnuz(), 11, 8);
    set(aoti_torch_dtype_float8_e5m2(), 12, 8);
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
  int32_t torch_device(int32_t device) const {
    return device == device_cpu ? cpu : device == device_cuda ? cuda : extension;
  }
};

inline const Numbers& numbers() {
  static const Numbers table;
  return table;
}

// Copies inside a kernel are no part of anyone's graph.
class NoGrad {
 public:
  NoGrad() : before_(aoti_torch_grad_mode_is_enabled()) { aoti_torch_grad_mode_set_enabled(false); }
  ~NoGrad() { aoti_torch_grad_mode_set_enabled(before_); }
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};

// An owned reference to a tensor, perhaps none.
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

inline StableIValue to_stack(Handle& handle) {
  return reinterpret_cast<StableIValue>(handle.release());
}

template <typename T>
T from_stack(StableIValue value) {
  T result;
  static_assert(sizeof(T) <= sizeof(StableIValue));
  std::memcpy(&result, &value, sizeof result);
  return result;
}

// The value behind an optional argument, taken out of its box; false for None.
inline bool take_optional(StableIValue& value) {
  auto* box = reinterpret_cast<StableIValue*>(value);
  if (box == nullptr) return false;
  value = *box;
  delete box;
  return true;
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
  if (device == table.cpu) {
    tensor.device = {device_cpu, 0};
  } else {
    tensor.device.device_type = device == table.cuda ? device_cuda : device_extension;
  }
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

// One tensor argument of a call: the caller's tensor, and a contiguous copy where the kernel needs
// one.
class TensorArgument {
 public:
  // Takes over the reference on the stack.
  explicit TensorArgument(StableIValue value)
      : handle_(reinterpret_cast<AtenTensorHandle>(value)) {}
  static TensorArgument optional(StableIValue value) {
    return TensorArgument(take_optional(value) ? value : 0);
  }

  const DLTensor* describe(bool written) {
    if (!handle_) return nullptr;
    adapter::describe(handle_.get(), written, view_);
    return &view_;
  }

  void make_contiguous(bool written) {
    if (!handle_ || detail::is_contiguous(view_)) return;
    copy_ = allocate(view_.shape, view_.ndim, view_.dtype, view_.device);
    const NoGrad guard;
    OPSMITH_SHIM(aoti_torch_copy_(copy_.get(), handle_.get(), 0));
    adapter::describe(copy_.get(), written, view_);
  }

  // Refuses a tensor to be written whose elements share memory.
  void check_writable(const char* op, const char* name) const {
    if (!handle_) return;
    for (int32_t i = 0; i < view_.ndim; ++i) {
      if (view_.strides[i] == 0 && view_.shape[i] > 1) {
        throw call_error(detail::join(op, ": argument '", name,
                                      "' is written, but its elements share memory: dimension ", i,
                                      " was expanded to ", view_.shape[i], ". Pass a clone."));
      }
    }
  }

  // Gives the caller's tensor what the kernel wrote into the copy.
  void write_back() {
    if (!copy_) return;
    const NoGrad guard;
    OPSMITH_SHIM(aoti_torch_copy_(handle_.get(), copy_.get(), 0));
  }

  const DLTensor& view() const { return view_; }

 private:
  Handle handle_;
  Handle copy_;
  DLTensor view_;
};

// A list on the stack, freed at the end of the call.
class StackList {
 public:
  explicit StackList(StableIValue value) : list_(reinterpret_cast<StableListHandle>(value)) {
    if (list_ != nullptr) OPSMITH_SHIM(torch_list_size(list_, &size_));
  }
  static StableIValue optional(StableIValue value) { return take_optional(value) ? value : 0; }
  StackList(const StackList&) = delete;
  StackList& operator=(const StackList&) = delete;
  ~StackList() {
    if (list_ != nullptr) torch_delete_list(list_);
  }

  bool present() const { return list_ != nullptr; }
  size_t size() const { return size_; }
  int64_t count() const { return present() ? static_cast<int64_t>(size_) : -1; }
  StableIValue item(size_t i) const {
    StableIValue value = 0;
    OPSMITH_SHIM(torch_list_get_item(list_, i, &value));
    return value;
  }

 private:
  StableListHandle list_;
  size_t size_ = 0;
};

// Several scalars of type T (uint8_t for bools); short ones without touching the heap.
template <typename T>
class Scalars {
 public:
  explicit Scalars(StableIValue value) {
    const StackList list(value);
    count_ = list.count();
    if (list.size() > std::size(few_)) {
      many_ = std::make_unique<T[]>(list.size());
      items_ = many_.get();
    }
    for (size_t i = 0; i < list.size(); ++i) items_[i] = from_stack<T>(list.item(i));
  }
  int64_t count() const { return count_; }
  const T* items() const { return items_; }

 private:
  int64_t count_ = -1;
  T few_[8];
  std::unique_ptr<T[]> many_;
  T* items_ = few_;
};

class TensorListArgument {
 public:
  explicit TensorListArgument(StableIValue value) {
    const StackList list(value);
    count_ = list.count();
    tensors_ = std::make_unique<Handle[]>(list.size());
    copies_ = std::make_unique<Handle[]>(list.size());
    views_ = std::make_unique<DLTensor[]>(list.size());
    for (size_t i = 0; i < list.size(); ++i) {
      tensors_[i] = Handle(reinterpret_cast<AtenTensorHandle>(list.item(i)));
    }
  }
  raw_tensors describe() {
    for (int64_t i = 0; i < count_; ++i) adapter::describe(tensors_[i].get(), false, views_[i]);
    return {count_, views_.get()};
  }
  void make_contiguous() {
    for (int64_t i = 0; i < count_; ++i) {
      if (detail::is_contiguous(views_[i])) continue;
      copies_[i] = allocate(views_[i].shape, views_[i].ndim, views_[i].dtype, views_[i].device);
      const NoGrad guard;
      OPSMITH_SHIM(aoti_torch_copy_(copies_[i].get(), tensors_[i].get(), 0));
      adapter::describe(copies_[i].get(), false, views_[i]);
    }
  }

 private:
  int64_t count_ = -1;
  std::unique_ptr<Handle[]> tensors_;
  std::unique_ptr<Handle[]> copies_;
  std::unique_ptr<DLTensor[]> views_;
};

class StringArgument {
 public:
  explicit StringArgument(StableIValue value) : handle_(reinterpret_cast<StringHandle>(value)) {}
  static StringArgument optional(StableIValue value) {
    return StringArgument(take_optional(value) ? value : 0);
  }
  StringArgument(const StringArgument&) = delete;
  StringArgument& operator=(const StringArgument&) = delete;
  ~StringArgument() {
    if (handle_ != nullptr) torch_delete_string(handle_);
  }
  raw_string raw() const {
    if (handle_ == nullptr) return {nullptr, 0};
    const char* data = nullptr;
    size_t size = 0;
    OPSMITH_SHIM(torch_string_c_str(handle_, &data));
    OPSMITH_SHIM(torch_string_length(handle_, &size));
    return {data, static_cast<int64_t>(size)};
  }

 private:
  StringHandle handle_;
};

// The Context of one call in PyTorch. Adapters of operators with data-dependent results derive from
// it to allocate them.
class Call {
 public:
  explicit Call(DLDevice device) : device_(device) {
    context_.self = this;
    context_.parallel_for = device.device_type == device_cpu ? &parallel_for : nullptr;
    context_.num_threads = &num_threads;
    context_.scratch = &scratch;
    context_.allocate = &refuse_allocate;
    context_.stream = device.device_type == device_cpu ? nullptr : &stream;
    context_.fail = &fail;
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() {
    while (blocks_ != nullptr) std::free(std::exchange(blocks_, blocks_->next));
  }

  const opsmith_context* context() const { return &context_; }
  DLDevice device() const { return device_; }

  void finish(int32_t status, const char* op) const {
    if (status != 0) [[unlikely]]
      throw call_error(detail::join(op, ": ", message_));
  }

 protected:
  opsmith_context context_{};
  std::string message_;

 private:
  struct alignas(64) Block {
    Block* next;
  };

  static void parallel_for(void*, int64_t begin, int64_t end, int64_t grain,
                           void (*body)(int64_t, int64_t, void*), void* state) {
    OPSMITH_SHIM(torch_parallel_for(begin, end, grain, body, state));
  }
  static int32_t num_threads(void*) {
    uint32_t count = 1;
    OPSMITH_SHIM(torch_get_num_threads(&count));
    return static_cast<int32_t>(count);
  }
  static void* scratch(void* self, uint64_t bytes) {
    Call& call = *static_cast<Call*>(self);
    const std::lock_guard<std::mutex> lock(call.mutex_);
    if (call.device_.device_type != device_cpu) return call.device_scratch(bytes);
    if (bytes > UINT64_MAX - 128) return nullptr;
    void* memory = std::aligned_alloc(64, sizeof(Block) + (bytes + 63) / 64 * 64);
    if (memory == nullptr) return nullptr;
    call.blocks_ = new (memory) Block{call.blocks_};
    return static_cast<char*>(memory) + sizeof(Block);
  }
  // On a device, a tensor of bytes: its allocator knows when the stream is done with it.
  void* device_scratch(uint64_t bytes) {
    if (bytes > INT64_MAX) return nullptr;
    const int64_t size = static_cast<int64_t>(bytes);
    Handle tensor = allocate(&size, 1, {1, 8, 1}, device_);
    void* data = nullptr;
    OPSMITH_SHIM(torch_get_mutable_data_ptr(tensor.get(), &data));
    device_scratch_.push_back(std::move(tensor));
    return data;
  }
  static int32_t refuse_allocate(void* self, int32_t, DLDataType, int32_t, const int64_t*,
                                 DLTensor*) {
    static_cast<Call*>(self)->message_ = "no result of this operator is allocated by the kernel";
    return 1;
  }
  static void* stream(void* self) {
#ifdef USE_CUDA
    void* result = nullptr;
    OPSMITH_SHIM(
        aoti_torch_get_current_cuda_stream(static_cast<Call*>(self)->device_.device_id, &result));
    return result;
#else
    (void)self;
    return nullptr;
#endif
  }
  static void fail(void* self, const char* message, uint64_t size) {
    static_cast<Call*>(self)->message_.assign(message, size);
  }

  DLDevice device_;
  std::mutex mutex_;
  Block* blocks_ = nullptr;
  std::vector<Handle> device_scratch_;
};

// Makes a device current for the length of a call.
class DeviceGuard {
 public:
  explicit DeviceGuard(DLDevice device) {
    if (device.device_type != device_cpu) {
      OPSMITH_SHIM(aoti_torch_create_device_guard(device.device_id, &guard_));
    }
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  ~DeviceGuard() {
    if (guard_ != nullptr) aoti_torch_delete_device_guard(guard_);
  }

 private:
  DeviceGuardHandle guard_ = nullptr;
};

// Registers `boxed` for ns::name under a dispatch key, and takes it back.
class Registration {
 public:
  bool add(const char* ns, const char* name, const char* key,
           void (*boxed)(StableIValue*, uint64_t, uint64_t)) {
    remove();
    if (aoti_torch_library_init_impl(ns, key, __FILE__, __LINE__, &library_) != 0) return false;
    return torch_library_impl(library_, name, boxed, TORCH_ABI_VERSION) == 0;
  }
  void remove() {
    if (library_ != nullptr) aoti_torch_delete_library_object(std::exchange(library_, nullptr));
  }

 private:
  TorchLibraryHandle library_ = nullptr;
};

}  // namespace opsmith::adapter
