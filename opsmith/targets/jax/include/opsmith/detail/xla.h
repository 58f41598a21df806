// The types of XLA's foreign function interface, through which JAX calls: tensors arrive as the
// buffers of a call frame, other arguments as its attributes; results are buffers that XLA has
// allocated.
#pragma once

#include <opsmith/detail/adapter.h>
#include <opsmith/detail/loop.h>

#include <xla/ffi/api/c_api.h>

#include <utility>

namespace opsmith::xla {

using detail::Loop;

constexpr DLDataType dtype_of(XLA_FFI_DataType type) {
  constexpr std::pair<XLA_FFI_DataType, DLDataType> dtypes[] = {
      {XLA_FFI_DataType_PRED, {6, 8, 1}},    {XLA_FFI_DataType_S8, {0, 8, 1}},
      {XLA_FFI_DataType_S16, {0, 16, 1}},    {XLA_FFI_DataType_S32, {0, 32, 1}},
      {XLA_FFI_DataType_S64, {0, 64, 1}},    {XLA_FFI_DataType_U8, {1, 8, 1}},
      {XLA_FFI_DataType_U16, {1, 16, 1}},    {XLA_FFI_DataType_U32, {1, 32, 1}},
      {XLA_FFI_DataType_U64, {1, 64, 1}},    {XLA_FFI_DataType_F16, {2, 16, 1}},
      {XLA_FFI_DataType_BF16, {4, 16, 1}},   {XLA_FFI_DataType_F32, {2, 32, 1}},
      {XLA_FFI_DataType_F64, {2, 64, 1}},    {XLA_FFI_DataType_C64, {5, 64, 1}},
      {XLA_FFI_DataType_C128, {5, 128, 1}},  {XLA_FFI_DataType_F8E4M3FN, {10, 8, 1}},
      {XLA_FFI_DataType_F8E5M2, {12, 8, 1}},
  };
  for (const auto& [known, dtype] : dtypes) {
    if (known == type) return dtype;
  }
  return {255, 0, 1};
}

// A buffer as DLPack describes tensors; XLA's are contiguous.
class TensorView {
 public:
  const DLTensor* describe(const XLA_FFI_Buffer& buffer) {
    if (buffer.rank > detail::max_dims) {
      throw std::runtime_error("a tensor has more than 64 dimensions");
    }
    view_ = detail::contiguous(buffer.data, {device_cpu, 0}, dtype_of(buffer.dtype), buffer.dims,
                               static_cast<int32_t>(buffer.rank), strides_);
    return &view_;
  }
  const DLTensor& view() const { return view_; }

 private:
  DLTensor view_{};
  int64_t strides_[detail::max_dims];
};

// Gives access to a call frame by the operator's own names.
class Frame {
 public:
  // The buffers of one argument; a count of -1 stands for None.
  struct Buffers {
    const XLA_FFI_Buffer* const* items;
    int64_t count;
  };

  // `counted`: whether the attribute opsmith_counts gives the number of buffers of each tensor
  // argument. Otherwise each argument has one buffer.
  Frame(const XLA_FFI_CallFrame* frame, bool counted) : frame_(frame) {
    if (!counted) return;
    const void* found = attribute("opsmith_counts", XLA_FFI_AttrType_ARRAY);
    if (found == nullptr) throw std::runtime_error("the call lacks the attribute 'opsmith_counts'");
    counts_ = static_cast<const int64_t*>(static_cast<const XLA_FFI_Array*>(found)->data);
  }

  Buffers argument(int64_t index) const {
    int64_t first = counts_ == nullptr ? index : 0;
    for (int64_t i = 0; counts_ != nullptr && i < index; ++i) {
      first += std::max<int64_t>(counts_[i], 0);
    }
    const int64_t count = counts_ == nullptr ? 1 : counts_[index];
    if (first + count > frame_->args.size) throw std::runtime_error("the call has too few buffers");
    return {reinterpret_cast<const XLA_FFI_Buffer* const*>(frame_->args.args) + first, count};
  }
  // The number of buffers of an argument.
  int64_t count(int64_t index) const {
    return counts_ == nullptr ? 1 : std::max<int64_t>(counts_[index], 0);
  }
  const XLA_FFI_Buffer& result(int64_t position) const {
    if (position >= frame_->rets.size) throw std::runtime_error("the call has too few results");
    return *static_cast<const XLA_FFI_Buffer*>(frame_->rets.rets[position]);
  }

  // Returns an attribute's value, or null if it is missing. Fails if it has another type.
  const void* attribute(std::string_view name, XLA_FFI_AttrType type) const {
    for (int64_t i = 0; i < frame_->attrs.size; ++i) {
      const XLA_FFI_ByteSpan& found = *frame_->attrs.names[i];
      if (std::string_view(found.ptr, found.len) != name) continue;
      if (frame_->attrs.types[i] == type) return frame_->attrs.attrs[i];
      throw std::runtime_error(detail::join("the attribute '", name, "' has another type"));
    }
    return nullptr;
  }

  const XLA_FFI_CallFrame* raw() const { return frame_; }

 private:
  const XLA_FFI_CallFrame* frame_;
  const int64_t* counts_ = nullptr;
};

// The type in which XLA holds each kind of attribute.
template <typename Raw>
inline constexpr XLA_FFI_AttrType attribute_type = XLA_FFI_AttrType_SCALAR;
template <detail::Sequence Raw>
inline constexpr XLA_FFI_AttrType attribute_type<Raw> = XLA_FFI_AttrType_ARRAY;
template <>
inline constexpr XLA_FFI_AttrType attribute_type<raw_string> = XLA_FFI_AttrType_STRING;

// An attribute of any kind. Bools are passed as numbers.
template <typename Raw>
class Argument {
 public:
  Argument(const Frame& frame, const char* name, bool optional)
      : held_(frame.attribute(name, attribute_type<Raw>)) {
    if (held_ == nullptr && !optional) {
      throw std::runtime_error(detail::join("the call lacks the attribute '", name, "'"));
    }
  }
  Raw raw() const {
    if constexpr (detail::OptionalNumber<Raw>) {
      if (held_ == nullptr) return {};
      return {1, number<decltype(Raw::value)>()};
    } else if constexpr (detail::Sequence<Raw>) {
      if (held_ == nullptr) return {-1, nullptr};
      const auto& array = *static_cast<const XLA_FFI_Array*>(held_);
      return {static_cast<int64_t>(array.size),
              static_cast<const detail::item_of<Raw>*>(array.data)};
    } else if constexpr (std::is_same_v<Raw, raw_string>) {
      if (held_ == nullptr) return {nullptr, 0};
      const auto& text = *static_cast<const XLA_FFI_ByteSpan*>(held_);
      return {text.ptr == nullptr ? "" : text.ptr, static_cast<int64_t>(text.len)};
    } else {
      return number<Raw>();
    }
  }

 private:
  template <typename Number>
  Number number() const {
    return *static_cast<const Number*>(static_cast<const XLA_FFI_Scalar*>(held_)->value);
  }

  const void* held_;
};

template <>
class Argument<const DLTensor*> {
 public:
  explicit Argument(Frame::Buffers buffers) : buffers_(buffers) {}
  const DLTensor* raw() {
    return buffers_.count > 0 ? tensor_.describe(*buffers_.items[0]) : nullptr;
  }

 protected:
  Frame::Buffers buffers_;
  TensorView tensor_;
};

// Copies a tensor into the buffer of a result, which the view describes from then on.
inline void copy_into(const XLA_FFI_Buffer& result, TensorView& tensor) {
  const DLTensor& before = tensor.view();
  const size_t bytes = static_cast<size_t>(detail::numel(before)) * before.dtype.bits / 8;
  if (bytes > 0 && result.data != before.data) std::memcpy(result.data, before.data, bytes);
  tensor.describe(result);
}

// JAX's values are immutable: the kernel writes into a copy, which becomes a result.
template <>
class Argument<DLTensor*> : public Argument<const DLTensor*> {
 public:
  Argument(Frame::Buffers buffers, const Frame& frame, int64_t position)
      : Argument<const DLTensor*>(buffers), frame_(frame), position_(position) {}

  void begin_write(const char*, const char*) {
    if (buffers_.count > 0) copy_into(frame_.result(position_), tensor_);
  }
  void end_write() const {}

 private:
  const Frame& frame_;
  int64_t position_;
};

template <>
class Argument<raw_tensors> {
 public:
  explicit Argument(Frame::Buffers buffers)
      : count_(buffers.count),
        tensors_(static_cast<size_t>(std::max<int64_t>(count_, 0))),
        views_(tensors_.size()) {
    for (int64_t i = 0; i < count_; ++i) {
      const size_t at = static_cast<size_t>(i);
      views_[at] = *tensors_[at].describe(*buffers.items[i]);
    }
  }
  raw_tensors raw() const { return {count_, views_.data()}; }

 protected:
  int64_t count_;
  std::vector<TensorView> tensors_;
  std::vector<DLTensor> views_;
};

// The results of a list begin at `position`.
template <>
class Argument<written_tensors> : public Argument<raw_tensors> {
 public:
  Argument(Frame::Buffers buffers, const Frame& frame, int64_t position)
      : Argument<raw_tensors>(buffers), frame_(frame), position_(position) {}

  void begin_write(const char*, const char*) {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      copy_into(frame_.result(position_ + static_cast<int64_t>(i)), tensors_[i]);
      views_[i] = tensors_[i].view();
    }
  }
  void end_write() const {}

 private:
  const Frame& frame_;
  int64_t position_;
};

// The Context of one call, with XLA's threads. Scratch memory is allocated on the host, since XLA's
// own allocator serves devices only.
class Call : public detail::CallContext {
 public:
  explicit Call(const Frame& frame) : frame_(frame) {
    const XLA_FFI_CallFrame* raw = frame.raw();
    XLA_FFI_ThreadPool_NumThreads_Args asked{XLA_FFI_ThreadPool_NumThreads_Args_STRUCT_SIZE,
                                             nullptr, raw->ctx, &threads_};
    if (!succeeds(raw->api->XLA_FFI_ThreadPool_NumThreads(&asked))) threads_ = 1;
    context_.num_threads = [](void* self) { return static_cast<int32_t>(of(self).threads_); };
    if (threads_ > 1) context_.parallel_for = &parallel_for;
  }
  const Frame& frame() const { return frame_; }

 private:
  static Call& of(void* self) { return *static_cast<Call*>(static_cast<CallContext*>(self)); }

  bool succeeds(XLA_FFI_Error* error) const {
    if (error == nullptr) return true;
    XLA_FFI_Error_Destroy_Args freed{XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, nullptr, error};
    frame_.raw()->api->XLA_FFI_Error_Destroy(&freed);
    return false;
  }

  static void parallel_for(void* self, int64_t begin, int64_t end, int64_t grain,
                           void (*body)(int64_t, int64_t, void*), void* state) {
    const Call& call = of(self);
    const auto loop = std::make_shared<Loop>(begin, end, grain, call.threads_, body, state);
    const XLA_FFI_CallFrame* raw = call.frame_.raw();
    for (int64_t i = 1; i < std::min(loop->count(), call.threads_); ++i) {
      auto* shared = new std::shared_ptr<Loop>(loop);
      XLA_FFI_ThreadPool_Schedule_Args task{XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE, nullptr,
                                            raw->ctx,
                                            [](void* data) {
                                              const std::unique_ptr<std::shared_ptr<Loop>> owner(
                                                  static_cast<std::shared_ptr<Loop>*>(data));
                                              (*owner)->work();
                                            },
                                            shared};
      if (!call.succeeds(raw->api->XLA_FFI_ThreadPool_Schedule(&task))) delete shared;
    }
    loop->work();
    loop->wait();
  }

  const Frame& frame_;
  int64_t threads_ = 1;
};

// A result of a call: the buffer at its position, in the size that JAX was given.
class Result {
 public:
  Result(const Call& call, int32_t position) : buffer_(call.frame().result(position)) {}

  const DLTensor* allocate(const int64_t* sizes, int32_t ndim, DLDataType dtype) {
    const DLTensor* tensor = tensor_.describe(buffer_);
    const bool same = tensor->ndim == ndim && std::equal(sizes, sizes + ndim, tensor->shape);
    if (!same || detail::dtype_key(tensor->dtype) != detail::dtype_key(dtype)) {
      throw std::runtime_error(detail::join(
          "JAX was told of a result of shape ", detail::show(tensor->shape, tensor->ndim), ", and ",
          detail::show(sizes, ndim), " follows from the arguments"));
    }
    return tensor;
  }
  bool allocated() const { return true; }

 private:
  const XLA_FFI_Buffer& buffer_;
  TensorView tensor_;
};

// Runs `body` for XLA, or answers XLA's query about a handler before it calls the handler.
template <typename Body>
XLA_FFI_Error* guarded(XLA_FFI_CallFrame* frame, const char* op, bool counted,
                       Body&& body) noexcept {
  const XLA_FFI_Extension_Base* asked = frame->extension_start;
  if (asked != nullptr && asked->type == XLA_FFI_Extension_Metadata) {
    XLA_FFI_Metadata* metadata =
        reinterpret_cast<const XLA_FFI_Metadata_Extension*>(asked)->metadata;
    // Everything used here exists in every minor version, so an older JAX may call it, too. A JAX
    // that does not state its minor version has the first.
    const int theirs = frame->api == nullptr ? 1 : frame->api->api_version.minor_version;
    metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    metadata->api_version.minor_version = std::min(XLA_FFI_API_MINOR, theirs);
    return nullptr;
  }
  const std::string message = detail::failure(op, [&] { body(Frame(frame, counted)); });
  if (message.empty()) return nullptr;
  XLA_FFI_Error_Create_Args error{XLA_FFI_Error_Create_Args_STRUCT_SIZE, nullptr, message.c_str(),
                                  XLA_FFI_Error_Code_INVALID_ARGUMENT};
  return frame->api->XLA_FFI_Error_Create(&error);
}

}  // namespace opsmith::xla
