#pragma once

#include <stdexcept>

namespace opsmith::detail {

// What std::optional has, for a view that is its own value where the argument is there: optional
// tensors are read as optional numbers are.
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
