#pragma once

#include <stdexcept>

namespace opsmith::detail {

// The interface of std::optional for a view that is its own value, so that optional tensors are
// read like optional numbers.
template <typename View>
class MaybeAbsent {
 public:
  bool has_value() const { return static_cast<bool>(view()); }
  const View& operator*() const { return view(); }
  const View* operator->() const { return &view(); }
  const View& value() const {
    if (!has_value()) throw std::runtime_error("an optional argument that is absent was read");
    return view();
  }

 private:
  const View& view() const { return static_cast<const View&>(*this); }
};

}  // namespace opsmith::detail
