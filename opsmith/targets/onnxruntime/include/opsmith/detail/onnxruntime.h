// The types of ONNX Runtime: tensors arrive as a node's inputs, other arguments as its attributes,
// which are read once; results are the node's outputs. Also shape inference.
//
// Include the header of an execution provider before it, onnxruntime_<device>.h. It defines:
//
//   provider                  its name in ONNX Runtime; null for the CPU's
//   device_of(value)          where a tensor lies
//   copy(kernel, to, from, bytes)  copies on that device, in the order of the call's work
//   Memory(info)              what a node keeps in order to allocate
//   Call(kernel, memory)      the Context of one call
#pragma once

#include <opsmith/detail/adapter.h>
#include <opsmith/detail/onnxruntime_api.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace opsmith::ort {

// The attributes of a node. Each function returns whether the attribute exists.
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
    if (!read(api().KernelInfoGetAttribute_string, name, value)) return false;
    value.resize(std::strlen(value.c_str()));  // without the final zero
    return true;
  }
  bool get(const char* name, std::vector<int64_t>& values) const {
    return read(api().KernelInfoGetAttributeArray_int64, name, values);
  }
  bool get(const char* name, std::vector<uint8_t>& values) const {
    std::vector<int64_t> numbers;
    if (!get(name, numbers)) return false;
    values.clear();
    for (int64_t number : numbers) values.push_back(number != 0);
    return true;
  }
  bool get(const char* name, std::vector<double>& values) const {
    std::vector<float> narrow;
    if (!read(api().KernelInfoGetAttributeArray_float, name, narrow)) return false;
    values = exact(name);
    if (values.size() != narrow.size()) values.assign(narrow.begin(), narrow.end());
    return true;
  }

 private:
  // Reads several numbers, or a text. Without a place to write, `get` returns their count.
  template <typename Get, typename Items>
  bool read(Get* get, const char* name, Items& items) const {
    size_t count = 0;
    if (!succeeds(get(info_, name, nullptr, &count))) return false;
    items.resize(count);
    return count == 0 || succeeds(get(info_, name, items.data(), &count));
  }
  // Reads the attribute with the exact numbers as text, if 32 bits would round them.
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

// An attribute of any kind.
template <typename Raw>
class Argument {
 public:
  Argument(const Attributes& attributes, const char* name, bool optional)
      : present_(attributes.get(name, value_)) {
    if (!present_ && !optional) {
      throw failure(detail::join("the node lacks the attribute '", name, "'"));
    }
  }
  Raw raw() const {
    if constexpr (detail::OptionalNumber<Raw>) {
      return {present_, value_};
    } else if constexpr (detail::Sequence<Raw>) {
      return {present_ ? static_cast<int64_t>(value_.size()) : -1, value_.data()};
    } else if constexpr (std::is_same_v<Raw, raw_string>) {
      return {present_ ? value_.c_str() : nullptr, static_cast<int64_t>(value_.size())};
    } else {
      return value_;
    }
  }

 private:
  template <typename Number>
  struct Held {
    using type = Number;
  };
  template <detail::OptionalNumber Optional>
  struct Held<Optional> {
    using type = decltype(Optional::value);
  };
  template <detail::Sequence Several>
  struct Held<Several> {
    using type = std::vector<detail::item_of<Several>>;
  };
  template <std::same_as<raw_string> Text>
  struct Held<Text> {
    using type = std::string;
  };

  typename Held<Raw>::type value_{};
  bool present_;
};

// A tensor: its memory, and its sizes, which ONNX Runtime copies out.
class TensorView {
 public:
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
    return finish(value, dtype_of(type), static_cast<int32_t>(count));
  }
  // An output whose sizes were given to ONNX Runtime, which leaves out outputs that are not used.
  const DLTensor* describe(const Value* value, DLDataType dtype, const int64_t* sizes,
                           int32_t count) {
    if (sizes != shape_) std::copy(sizes, sizes + count, shape_);
    return finish(value, dtype, count);
  }

  const DLTensor& view() const { return view_; }

 private:
  const DLTensor* finish(const Value* value, DLDataType dtype, int32_t count) {
    void* data = nullptr;
    DLDevice device = view_.device;
    if (value != nullptr) {
      check(api().GetTensorMutableData(const_cast<Value*>(value), &data));
      device = device_of(value);
    }
    view_ = detail::contiguous(data, device, dtype, shape_, count, strides_);
    return &view_;
  }

  DLTensor view_{};
  int64_t shape_[detail::max_dims];
  int64_t strides_[detail::max_dims];
};

inline const Value* output(KernelContext* context, size_t index, const int64_t* sizes,
                           int32_t count) {
  Value* value = nullptr;
  check(api().KernelContext_GetOutput(context, index, sizes, static_cast<size_t>(count), &value));
  return value;
}

// The inputs of one call. The last input may hold several arguments: `counts` has the number of
// tensors of each, -1 for None.
class Inputs {
 public:
  // Returns the tensors of an argument in the last input.
  struct Several {
    const Inputs& inputs;
    const char* name;
    int64_t first;
    int64_t count;

    const Value* at(int64_t i) const {
      const Value* value = inputs.optional(static_cast<size_t>(first + i));
      if (value == nullptr) {
        throw std::runtime_error(detail::join("argument '", name, "' is incomplete."));
      }
      return value;
    }
  };

  Inputs(KernelContext* kernel, int64_t single, const std::vector<int64_t>& counts)
      : kernel_(kernel), single_(single), counts_(counts) {
    check(api().KernelContext_GetInputCount(kernel, &count_));
  }

  const Value* optional(size_t index) const {
    if (index >= count_) return nullptr;  // absent inputs at the end are not counted
    const Value* value = nullptr;
    check(api().KernelContext_GetInput(kernel_, index, &value));
    return value;
  }
  const Value* required(size_t index, const char* name) const {
    const Value* value = optional(index);
    if (value == nullptr) {
      throw std::runtime_error(detail::join("argument '", name, "' is missing."));
    }
    return value;
  }
  Several several(size_t index, const char* name) const {
    int64_t first = single_;
    for (size_t i = 0; i < index; ++i) first += std::max<int64_t>(counts_[i], 0);
    return {*this, name, first, counts_[index]};
  }

  KernelContext* kernel() const { return kernel_; }

 private:
  KernelContext* kernel_;
  size_t count_ = 0;
  int64_t single_;
  const std::vector<int64_t>& counts_;
};

template <>
class Argument<const DLTensor*> {
 public:
  explicit Argument(const Value* value) : value_(value) {}
  explicit Argument(const Inputs::Several& tensors)
      : value_(tensors.count > 0 ? tensors.at(0) : nullptr) {}
  const DLTensor* raw() { return tensor_.describe(value_); }

 protected:
  const Value* value_;
  TensorView tensor_;
};

// ONNX's values are immutable: the kernel writes into a copy, which becomes an output.
template <>
class Argument<DLTensor*> : public Argument<const DLTensor*> {
 public:
  template <typename Source>
  Argument(Source source, const Inputs& inputs, size_t position)
      : Argument<const DLTensor*>(source), kernel_(inputs.kernel()), position_(position) {}

  void begin_write(const char*, const char*) {
    if (value_ == nullptr) return;
    const DLTensor before = tensor_.view();
    const Value* value = output(kernel_, position_, before.shape, before.ndim);
    void* data = tensor_.describe(value, before.dtype, before.shape, before.ndim)->data;
    const size_t bytes = static_cast<size_t>(detail::numel(before)) * before.dtype.bits / 8;
    if (bytes > 0 && data != before.data) copy(kernel_, data, before.data, bytes);
  }
  void end_write() const {}

 private:
  KernelContext* kernel_;
  size_t position_;
};

template <>
class Argument<raw_tensors> {
 public:
  explicit Argument(const Inputs::Several& tensors)
      : count_(tensors.count),
        tensors_(static_cast<size_t>(std::max<int64_t>(count_, 0))),
        views_(tensors_.size()) {
    for (int64_t i = 0; i < count_; ++i) {
      const size_t at = static_cast<size_t>(i);
      views_[at] = *tensors_[at].describe(tensors.at(i));
    }
  }
  raw_tensors raw() const { return {count_, views_.data()}; }

 private:
  int64_t count_;
  std::vector<TensorView> tensors_;
  std::vector<DLTensor> views_;
};

// A result of a call: the node's output at its position.
class Result {
 public:
  Result(const Call& call, int32_t position) : kernel_(call.kernel()), position_(position) {}

  const DLTensor* allocate(const int64_t* sizes, int32_t ndim, DLDataType dtype) {
    const Value* value = output(kernel_, static_cast<size_t>(position_), sizes, ndim);
    allocated_ = true;
    return tensor_.describe(value, dtype, sizes, ndim);
  }
  bool allocated() const { return allocated_; }

 private:
  KernelContext* kernel_;
  int32_t position_;
  bool allocated_ = false;
  TensorView tensor_;
};

// A size during shape inference: a number, a name, or neither.
struct Size {
  int64_t number = -1;
  const char* name = nullptr;

  bool known() const { return number >= 0; }
};

// Shape inference of one node: reads what is known of the inputs, and infers the outputs.
class Shapes {
 public:
  explicit Shapes(ShapeContext* context) : context_(context) {
    check(api().ShapeInferContext_GetInputCount(context, &count_));
  }

  // Reads an input; returns false if it is absent, or nothing is known about it.
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

  // Reads an int attribute, or several; empty if it is missing.
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
    // ONNX Runtime interprets -1 without a name as a known size, so give each unknown size a unique
    // name.
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
