// Sizes that the tensors at one place of several lists share: `?N` and `?*S` in a declaration.
#pragma once

#include <opsmith/detail/check.h>

#include <algorithm>
#include <cstdint>
#include <string>

namespace opsmith {
namespace detail {

// Compares lists place by place. The first list of a call that has the name fixes its sizes.
class ItemSizes {
 public:
  explicit ItemSizes(const char* text) : text_(text) {}

  // Fixes, or compares, the number of tensors. `axis` is where the sizes stand in each of them,
  // from the end if it is negative; `rest` is the number of the other dimensions, -1 beside a
  // single one.
  template <typename Binder, typename List>
  void list(const Binder& binder, const char* name, const List& list, int64_t axis, int32_t rest) {
    if (by_ == nullptr) {
      by_ = name;
      items_ = list.items;
      count_ = list.count;
      axis_ = axis;
      rest_ = rest;
    } else if (list.count != count_) {
      binder.fail(join("argument '", name, "' has ", list.count, " tensors, expected ", count_,
                       ": it shares ", text_, " with '", by_, "', place by place."));
    }
  }

  template <typename Binder>
  void one(const Binder& binder, Where where, const DLTensor& tensor, int64_t axis,
           const char* type) const {
    const int64_t expected = fixed(where)[0];
    if (tensor.shape[axis] == expected) return;
    binder.fail(join("argument ", where.text(), " does not fit ", type, ": dimension ", axis, " (",
                     text_, ") is ", tensor.shape[axis], ", expected ", expected, as_in(where)),
                &tensor);
  }

  template <typename Binder>
  void several(const Binder& binder, Where where, const DLTensor& tensor, int64_t axis,
               int64_t count, const char* type) const {
    const int64_t expected = items_[where.position].ndim - rest_;
    const int64_t* sizes = tensor.shape + axis;
    if (count == expected && std::equal(sizes, sizes + count, fixed(where))) return;
    binder.fail(join("argument ", where.text(), " does not fit ", type, ": dimensions from ", axis,
                     " (", text_, ") are ", show(sizes, count), ", expected ",
                     show(fixed(where), expected), as_in(where)),
                &tensor);
  }

 private:
  const int64_t* fixed(Where where) const {
    const DLTensor& tensor = items_[where.position];
    return tensor.shape + (axis_ < 0 ? tensor.ndim + axis_ : axis_);
  }
  std::string as_in(Where where) const {
    return join(", as in ", Where{by_, where.position}.text(), ".");
  }

  const char* text_;
  const char* by_ = nullptr;
  const DLTensor* items_ = nullptr;
  int64_t count_ = 0;
  int64_t axis_ = 0;
  int32_t rest_ = -1;
};

}  // namespace detail
}  // namespace opsmith
