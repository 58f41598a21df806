// Contiguous copies of arguments that are not contiguous.
#pragma once

#include <opsmith/detail/values.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace opsmith::hosted {

// Copies the elements of `from` to those of `to`, which has the same shape.
inline void copy_elements(const DLTensor& to, const DLTensor& from) {
  const int64_t count = detail::numel(from);
  if (count == 0) return;
  const int32_t last = std::max(from.ndim - 1, 0);
  const int64_t row = from.ndim == 0 ? 1 : from.shape[last];
  const int64_t from_step = from.ndim == 0 ? 1 : from.strides[last];
  const int64_t to_step = to.ndim == 0 ? 1 : to.strides[last];
  const auto copy_rows = [&]<size_t size>(std::integral_constant<size_t, size>) {
    struct Element {
      unsigned char bytes[size];
    };
    Element* const target = static_cast<Element*>(to.data);
    const Element* const source = static_cast<const Element*>(from.data);
    for (int64_t first = 0; first < count; first += row) {
      const Element* read = source + detail::offset_of(from, first);
      Element* write = target + detail::offset_of(to, first);
      for (int64_t i = 0; i < row; ++i) write[i * to_step] = read[i * from_step];
    }
  };
  switch (from.dtype.bits / 8) {
    case 1:
      return copy_rows(std::integral_constant<size_t, 1>());
    case 2:
      return copy_rows(std::integral_constant<size_t, 2>());
    case 4:
      return copy_rows(std::integral_constant<size_t, 4>());
    case 8:
      return copy_rows(std::integral_constant<size_t, 8>());
    case 16:
      return copy_rows(std::integral_constant<size_t, 16>());
    default:
      throw std::runtime_error(detail::join("cannot copy ", detail::dtype_name(from.dtype)));
  }
}

// The error of a copy for which there is no memory; the message names the argument.
struct NoMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Memory for the elements of one tensor that must be copied.
class Copy {
 public:
  // Replaces `view`, an argument, by a contiguous copy, unless that is done already.
  void take(DLTensor& view, const char* name) {
    if (memory_ != nullptr) return;
    const size_t head = (static_cast<size_t>(view.ndim) * sizeof(int64_t) + 63) / 64 * 64;
    const size_t bytes = static_cast<size_t>(detail::numel(view)) * view.dtype.bits / 8;
    memory_.reset(std::aligned_alloc(64, head + (bytes + 63) / 64 * 64));
    if (memory_ == nullptr) {
      throw NoMemory(detail::join("argument '", name, "' needs a contiguous copy, for which there ",
                                  "is no memory left: ", bytes, " bytes"));
    }
    copy_ = detail::contiguous(static_cast<char*>(memory_.get()) + head, view.device, view.dtype,
                               view.shape, view.ndim, static_cast<int64_t*>(memory_.get()));
    copy_elements(copy_, view);
    view = copy_;
  }

  // Copies the elements back to `original`, if there is a copy.
  void give(const DLTensor& original) const {
    if (memory_ != nullptr) copy_elements(original, copy_);
  }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> memory_;
  DLTensor copy_{};
};

}  // namespace opsmith::hosted
