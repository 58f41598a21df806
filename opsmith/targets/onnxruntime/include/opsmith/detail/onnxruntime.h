// What the generated ONNX Runtime adapters are made of: attributes, arguments and the Context of
// one call, and shape inference.
#pragma once

#include <opsmith/detail/onnxruntime_api.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace opsmith::ort {

// The attributes of a node. Each function says whether the attribute is there.
class Attributes {
 public:
  explicit Attributes(const KernelInfo* info) : info_(info) {}

  bool get(const char* name, int64_t& value) const {
    return succeeds(api().KernelInfoGetAttribute_int64(info_, name, &value));
  }
  bool get(const char* name, uint8_t& value) const {
    int64_t number = 0;
    if (!get(name, number)) return false;
    value = number != 0;
    return true;
  }
  bool get(const char* name, double& value) const {
    std::vector<double> exact = this->exact(name);
    float narrow = 0;
    if (!succeeds(api().KernelInfoGetAttribute_float(info_, name, &narrow))) return false;
    value = exact.size() == 1 ? exact[0] : narrow;
    return true;
  }
  bool get(const char* name, std::string& value) const {
    size_t size = 0;
    // Without a place to write, the size that the text and its final zero take.
    if (!succeeds(api().KernelInfoGetAttribute_string(info_, name, nullptr, &size))) return false;
    value.resize(size);
    if (!succeeds(api().KernelInfoGetAttribute_string(info_, name, value.data(), &size))) {
      return false;
    }
    value.resize(std::strlen(value.c_str()));
    return true;
  }
  bool get(const char* name, std::vector<int64_t>& values) const {
    size_t count = 0;
    if (!succeeds(api().KernelInfoGetAttributeArray_int64(info_, name, nullptr, &count))) {
      return false;
    }
    values.resize(count);
    return count == 0 ||
           succeeds(api().KernelInfoGetAttributeArray_int64(info_, name, values.data(), &count));
  }
  bool get(const char* name, std::vector<uint8_t>& values) const {
    std::vector<int64_t> numbers;
    if (!get(name, numbers)) return false;
    values.clear();
    for (int64_t number : numbers) values.push_back(number != 0);
    return true;
  }
  bool get(const char* name, std::vector<double>& values) const {
    size_t count = 0;
    if (!succeeds(api().KernelInfoGetAttributeArray_float(info_, name, nullptr, &count))) {
      return false;
    }
    std::vector<float> narrow(count);
    if (count != 0 &&
        !succeeds(api().KernelInfoGetAttributeArray_float(info_, name, narrow.data(), &count))) {
      return false;
    }
    values = exact(name);
    if (values.size() != narrow.size()) values.assign(narrow.begin(), narrow.end());
    return true;
  }

 private:
  // The attribute that has as text what 32 bits would round.
  std::vector<double> exact(const char* name) const {
    std::string text;
    std::vector<double> values;
    if (!get((std::string(name) + "_exact").c_str(), text)) return values;
    const char* at = text.c_str();
    for (char* end = nullptr;; at = end) {
      const double value = std::strtod(at, &end);
      if (end == at) return values;
      values.push_back(value);
    }
  }

  const KernelInfo* info_;
};

// A tensor of a call: where it lies, and its sizes, which ONNX Runtime copies out.
class Argument {
 public:
  // Takes the value if it is there; an absent optional input has none.
  const DLTensor* describe(const Value* value) {
    if (value == nullptr) return nullptr;
    TypeInfo* info = nullptr;
    check(api().GetTensorTypeAndShape(value, &info));
    const std::unique_ptr<TypeInfo, void (*)(TypeInfo*)> owner(
        info, [](TypeInfo* known) { api().ReleaseTensorTypeAndShapeInfo(known); });
    size_t count = 0;
    int32_t type = 0;
    check(api().GetDimensionsCount(info, &count));
    if (count > detail::max_dims) throw failure("a tensor has more than 64 dimensions");
    check(api().GetDimensions(info, shape_, count));
    check(api().GetTensorElementType(info, &type));
    view_.dtype = dtype_of(type);
    check(api().GetTensorMutableData(const_cast<Value*>(value), &view_.data));
    finish(static_cast<int32_t>(count));
    return &view_;
  }

  // A tensor that this call made.
  const DLTensor* describe(void* data, DLDataType dtype, const int64_t* sizes, int32_t count) {
    std::copy(sizes, sizes + count, shape_);
    view_.data = data;
    view_.dtype = dtype;
    finish(count);
    return &view_;
  }

  const DLTensor& view() const { return view_; }

 private:
  void finish(int32_t count) {
    view_.device = {device_cpu, 0};
    view_.ndim = count;
    view_.shape = shape_;
    view_.strides = strides_;
    view_.byte_offset = 0;
    int64_t stride = 1;
    for (int32_t i = count - 1; i >= 0; --i) {
      strides_[i] = stride;
      stride *= std::max<int64_t>(shape_[i], 1);
    }
  }

  DLTensor view_{};
  int64_t shape_[detail::max_dims];
  int64_t strides_[detail::max_dims];
};

inline const Value* input(KernelContext* context, size_t index, size_t count) {
  if (index >= count) return nullptr;  // absent optional inputs at the end are not even counted
  const Value* value = nullptr;
  check(api().KernelContext_GetInput(context, index, &value));
  return value;
}

inline void* output(KernelContext* context, size_t index, const int64_t* sizes, int32_t count) {
  Value* value = nullptr;
  check(api().KernelContext_GetOutput(context, index, sizes, static_cast<size_t>(count), &value));
  void* data = nullptr;
  if (value != nullptr) check(api().GetTensorMutableData(value, &data));
  return data;
}

inline size_t bytes_of(const DLTensor& tensor) {
  return static_cast<size_t>(detail::numel(tensor)) * tensor.dtype.bits / 8;
}

// The Context of one call. Adapters of operators with data-dependent results derive from it.
class Call {
 public:
  explicit Call(KernelContext* kernel) : kernel_(kernel) {
    context_.self = this;
    context_.parallel_for = &parallel_for;
    context_.num_threads = &num_threads;
    context_.scratch = &scratch;
    context_.allocate = &refuse_allocate;
    context_.stream = nullptr;
    context_.fail = &fail;
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() {
    while (blocks_ != nullptr) std::free(std::exchange(blocks_, blocks_->next));
  }

  const opsmith_context* context() const { return &context_; }

  void finish(int32_t status, const char* op) const {
    if (status != 0) [[unlikely]]
      throw call_error(detail::join(op, ": ", message_));
  }

 protected:
  opsmith_context context_{};
  KernelContext* kernel_;
  std::string message_;

 private:
  struct alignas(64) Block {
    Block* next;
  };
  struct Pieces {
    int64_t begin;
    int64_t end;
    int64_t size;
    void (*body)(int64_t, int64_t, void*);
    void* state;
  };

  static int32_t threads() {
    static const int32_t count =
        static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency()));
    return count;
  }
  static void parallel_for(void* self, int64_t begin, int64_t end, int64_t grain,
                           void (*body)(int64_t, int64_t, void*), void* state) {
    // More pieces than threads, so that one that is late holds up less; ONNX Runtime does not say
    // how many threads the session has.
    const int64_t most = int64_t{threads()} * 4;
    const int64_t wanted = std::clamp<int64_t>((end - begin + grain - 1) / grain, 1, most);
    const int64_t size = (end - begin + wanted - 1) / wanted;
    Pieces pieces{begin, end, size, body, state};
    const size_t count = static_cast<size_t>((end - begin + size - 1) / size);
    check(api().KernelContext_ParallelFor(
        static_cast<Call*>(self)->kernel_,
        [](void* opaque, size_t index) {
          const Pieces& all = *static_cast<const Pieces*>(opaque);
          const int64_t first = all.begin + static_cast<int64_t>(index) * all.size;
          all.body(first, std::min(first + all.size, all.end), all.state);
        },
        count, count, &pieces));
  }
  static int32_t num_threads(void*) { return threads(); }
  static void* scratch(void* self, uint64_t bytes) {
    Call& call = *static_cast<Call*>(self);
    const std::lock_guard<std::mutex> lock(call.mutex_);
    if (bytes > UINT64_MAX - 128) return nullptr;
    void* memory = std::aligned_alloc(64, sizeof(Block) + (bytes + 63) / 64 * 64);
    if (memory == nullptr) return nullptr;
    call.blocks_ = new (memory) Block{call.blocks_};
    return static_cast<char*>(memory) + sizeof(Block);
  }
  static int32_t refuse_allocate(void* self, int32_t, DLDataType, int32_t, const int64_t*,
                                 DLTensor*) {
    static_cast<Call*>(self)->message_ = "no result of this operator is allocated by the kernel";
    return 1;
  }
  static void fail(void* self, const char* message, uint64_t size) {
    static_cast<Call*>(self)->message_.assign(message, size);
  }

  std::mutex mutex_;
  Block* blocks_ = nullptr;
};

// A size during shape inference: a number, a name, or neither.
struct Size {
  int64_t number = -1;
  const char* name = nullptr;

  bool known() const { return number >= 0; }
};

// Shape inference of one node: what is known of the inputs, what follows for the outputs.
class Shapes {
 public:
  explicit Shapes(ShapeContext* context) : context_(context) {
    check(api().ShapeInferContext_GetInputCount(context, &count_));
  }

  // Reads an input; false where it is absent, or nothing is known of it.
  bool input(size_t index, int32_t& type, std::vector<Size>& sizes) const {
    sizes.clear();
    TypeInfo* info = nullptr;
    if (index >= count_ ||
        !succeeds(api().ShapeInferContext_GetInputTypeShape(context_, index, &info)) ||
        info == nullptr) {
      return false;
    }
    // `info` belongs to the context.
    size_t rank = 0;
    if (!succeeds(api().GetTensorElementType(info, &type)) ||
        !succeeds(api().GetDimensionsCount(info, &rank))) {
      return false;
    }
    std::vector<int64_t> numbers(rank);
    std::vector<const char*> names(rank);
    if (rank > 0 && (!succeeds(api().GetDimensions(info, numbers.data(), rank)) ||
                     !succeeds(api().GetSymbolicDimensions(info, names.data(), rank)))) {
      return false;
    }
    for (size_t i = 0; i < rank; ++i) {
      const bool named = names[i] != nullptr && names[i][0] != '\0';
      sizes.push_back({numbers[i], named ? names[i] : nullptr});
    }
    return true;
  }

  // An int attribute, or several; nothing where there is none.
  void attribute(const char* name, std::vector<int64_t>& values) const {
    const Attribute* found = nullptr;
    if (!succeeds(api().ShapeInferContext_GetAttribute(context_, name, &found)) ||
        found == nullptr) {
      return;
    }
    values.resize(64);
    size_t needed = 0;
    for (const int32_t type : {1, 2}) {  // INT, INTS
      const size_t room = type == 1 ? sizeof(int64_t) : values.size() * sizeof(int64_t);
      if (succeeds(api().ReadOpAttr(found, type, values.data(), room, &needed))) {
        values.resize(type == 1 ? 1 : needed / sizeof(int64_t));
        return;
      }
    }
    values.clear();
  }

  void output(size_t index, int32_t type, const std::vector<Size>& sizes) const {
    TypeInfo* info = nullptr;
    check(api().CreateTensorTypeAndShapeInfo(&info));
    const std::unique_ptr<TypeInfo, void (*)(TypeInfo*)> owner(
        info, [](TypeInfo* known) { api().ReleaseTensorTypeAndShapeInfo(known); });
    // ONNX Runtime takes -1 without a name for a size that is known, so what nothing is known of
    // gets a name that nothing else has.
    static std::atomic<uint64_t> unknown{0};
    std::vector<int64_t> numbers;
    std::vector<std::string> texts;
    for (const Size& size : sizes) {
      numbers.push_back(size.number);
      const bool named = size.name != nullptr || size.known();
      texts.push_back(named ? (size.name == nullptr ? "" : size.name)
                            : detail::join("opsmith_unknown_", unknown.fetch_add(1)));
    }
    std::vector<const char*> names;
    for (const std::string& text : texts) names.push_back(text.c_str());
    check(api().SetTensorElementType(info, type));
    check(api().SetDimensions(info, numbers.data(), numbers.size()));
    check(api().SetSymbolicDimensions(info, names.data(), names.size()));
    check(api().ShapeInferContext_SetOutputTypeShape(context_, index, info));
  }

 private:
  ShapeContext* context_;
  size_t count_ = 0;
};

}  // namespace opsmith::ort
