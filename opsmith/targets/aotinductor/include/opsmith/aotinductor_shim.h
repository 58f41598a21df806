// The argument types of code that AOTInductor compiled: tensors arrive as borrowed handles,
// optional arguments as pointers that may be null, sequences as a pointer and a count.
#pragma once

#include <opsmith/detail/torch/adapter.h>

namespace opsmith::compiled {

using aten::Call;
using aten::Result;

// The argument for a number.
template <typename Raw>
class Argument {
 public:
  explicit Argument(Raw value) : value_(value) {}
  Raw raw() const { return value_; }

 private:
  Raw value_;
};

// The argument for a bool, which compiled code passes as a 32-bit number.
template <>
class Argument<uint8_t> {
 public:
  explicit Argument(int32_t value) : value_(value) {}
  uint8_t raw() const { return value_ != 0; }

 private:
  int32_t value_;
};

template <detail::OptionalNumber Raw>
class Argument<Raw> {
  using Value = decltype(Raw::value);
  using Passed = std::conditional_t<std::is_same_v<Value, uint8_t>, int32_t, Value>;

 public:
  explicit Argument(const Passed* value) : value_(value) {}
  Raw raw() const {
    if (value_ == nullptr) return {};
    return {1, Argument<Value>(*value_).raw()};
  }

 private:
  const Passed* value_;
};

// The argument for several numbers.
template <detail::Sequence Raw>
class Argument<Raw> {
  using Item = detail::item_of<Raw>;

 public:
  Argument(const Item* items, int64_t count) : items_(items), count_(count) {}
  Argument(const Item** items, int64_t count)
      : items_(items == nullptr ? nullptr : *items), count_(items == nullptr ? -1 : count) {}
  Raw raw() const { return {count_, items_}; }

 private:
  const Item* items_;
  int64_t count_;
};

template <>
class Argument<raw_bools> {
 public:
  Argument(const int32_t* items, int64_t count)
      : count_(count), items_(std::make_unique<uint8_t[]>(static_cast<size_t>(count))) {
    for (int64_t i = 0; i < count; ++i) items_[i] = items[i] != 0;
  }
  Argument(const int32_t** items, int64_t count)
      : Argument(items == nullptr ? nullptr : *items, items == nullptr ? 0 : count) {
    if (items == nullptr) count_ = -1;
  }
  raw_bools raw() const { return {count_, items_.get()}; }

 private:
  int64_t count_;
  std::unique_ptr<uint8_t[]> items_;
};

template <>
class Argument<raw_string> {
 public:
  explicit Argument(const char* text) : text_(text) {}
  explicit Argument(const char** text) : text_(text == nullptr ? nullptr : *text) {}
  raw_string raw() const {
    return {text_, text_ == nullptr ? 0 : static_cast<int64_t>(std::strlen(text_))};
  }

 private:
  const char* text_;
};

template <bool written>
class BorrowedTensor : public aten::TensorArgument<written> {
 public:
  explicit BorrowedTensor(AtenTensorHandle tensor) : aten::TensorArgument<written>(tensor) {}
  explicit BorrowedTensor(const AtenTensorHandle* tensor)
      : BorrowedTensor(tensor == nullptr ? nullptr : *tensor) {}
};

template <>
class Argument<const DLTensor*> : public BorrowedTensor<false> {
  using BorrowedTensor::BorrowedTensor;
};

template <>
class Argument<DLTensor*> : public BorrowedTensor<true> {
  using BorrowedTensor::BorrowedTensor;
};

template <bool written>
class BorrowedTensorList : public aten::TensorListArgument<written> {
 public:
  using Base = aten::TensorListArgument<written>;
  using Base::Base;
  BorrowedTensorList(const AtenTensorHandle** tensors, int64_t count)
      : Base(tensors == nullptr ? nullptr : *tensors, tensors == nullptr ? -1 : count) {}
};

template <>
class Argument<raw_tensors> : public BorrowedTensorList<false> {
  using BorrowedTensorList::BorrowedTensorList;
};

template <>
class Argument<written_tensors> : public BorrowedTensorList<true> {
  using BorrowedTensorList::BorrowedTensorList;
};

}  // namespace opsmith::compiled
