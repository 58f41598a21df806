// Views of a call's tensors, as a kernel sees them.
#pragma once

#include <opsmith/detail/dtypes.h>
#include <opsmith/detail/maybe_absent.h>
#include <opsmith/detail/text.h>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <type_traits>

namespace opsmith {

// A view of one tensor. `T` is const for an argument that the operator does not write. For an
// optional argument, `has_value()`, `*x`, `x->` and `value()` work as in std::optional.
template <typename T>
class Tensor : public detail::MaybeAbsent<Tensor<T>> {
 public:
  using value_type = std::remove_const_t<T>;

  Tensor() = default;
  explicit Tensor(const DLTensor* tensor) {
    if (tensor == nullptr) return;
    data_ = static_cast<T*>(tensor->data);
    sizes_ = tensor->shape;
    strides_ = tensor->strides;
    dim_ = tensor->ndim;
    present_ = true;
  }

  // False if None was passed for an optional argument.
  explicit operator bool() const { return present_; }

  T* data() const { return data_; }
  int64_t dim() const { return dim_; }
  int64_t size(int64_t i) const { return sizes_[i]; }
  int64_t stride(int64_t i) const { return strides_[i]; }  // in elements
  std::span<const int64_t> sizes() const { return {sizes_, static_cast<size_t>(dim_)}; }
  std::span<const int64_t> strides() const { return {strides_, static_cast<size_t>(dim_)}; }
  int64_t numel() const {
    int64_t count = present_ ? 1 : 0;
    for (int64_t i = 0; i < dim_; ++i) count *= sizes_[i];
    return count;
  }

  // The i-th element in memory order; the usual access to a contiguous tensor.
  T& operator[](int64_t i) const { return data_[i]; }

  // The element at an index per dimension, by the tensor's strides.
  template <std::integral... Index>
    requires(sizeof...(Index) > 0)
  T& operator()(Index... index) const {
    int64_t offset = 0;
    int64_t dimension = 0;
    ((offset += static_cast<int64_t>(index) * strides_[dimension++]), ...);
    return data_[offset];
  }
  T& operator()() const { return *data_; }

 private:
  T* data_ = nullptr;
  const int64_t* sizes_ = nullptr;
  const int64_t* strides_ = nullptr;
  int64_t dim_ = 0;
  bool present_ = false;
};

// A tensor whose dtype is not declared (a plain `Tensor`); see `dispatch`.
class AnyTensor : public detail::MaybeAbsent<AnyTensor> {
 public:
  AnyTensor() = default;
  explicit AnyTensor(const DLTensor* tensor) : tensor_(tensor) {}

  explicit operator bool() const { return tensor_ != nullptr; }
  DLDataType dtype() const { return tensor_->dtype; }
  const char* dtype_name() const { return detail::dtype_name(tensor_->dtype); }
  template <typename T>
  bool is() const {
    return detail::dtype_key(tensor_->dtype) == detail::dtype_traits<std::remove_const_t<T>>::key;
  }
  int64_t dim() const { return tensor_->ndim; }
  int64_t size(int64_t i) const { return tensor_->shape[i]; }
  int64_t numel() const { return Tensor<const char>(tensor_).numel(); }

  // The tensor with its element type; throws if it has another one.
  template <typename T>
  Tensor<T> as() const {
    if (!is<T>()) {
      throw std::runtime_error(detail::join("a tensor of dtype ", dtype_name(), " was read as ",
                                            detail::dtype_traits<std::remove_const_t<T>>::name));
    }
    return Tensor<T>(tensor_);
  }

 private:
  const DLTensor* tensor_ = nullptr;
};

// A list of tensors; `View` is Tensor<T> or AnyTensor.
template <typename View>
class List : public detail::MaybeAbsent<List<View>> {
 public:
  explicit List(raw_tensors list)
      : items_(list.items), count_(std::max<int64_t>(list.count, 0)), present_(list.count >= 0) {}

  // False if None was passed for an optional argument.
  explicit operator bool() const { return present_; }
  int64_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  View operator[](int64_t i) const { return View(items_ + i); }

 private:
  const DLTensor* items_;
  int64_t count_;
  bool present_;
};
template <typename T>
using TensorList = List<Tensor<T>>;

}  // namespace opsmith
