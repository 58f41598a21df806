// What the kernels share: which score comes first, and how far two boxes overlap.
#pragma once

#include <opsmith/math.h>

#include <cstdint>
#include <type_traits>

namespace detection {

// Half types are computed in float.
template <typename T>
using Number = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Whether box i comes before box j. NaN is above all numbers, as `torch.sort` has it.
template <typename T>
OPSMITH_HOST_DEVICE bool comes_before(const T* scores, int64_t i, int64_t j) {
  const auto own = static_cast<Number<T>>(scores[i]), other = static_cast<Number<T>>(scores[j]);
  const bool own_is_nan = own != own, other_is_nan = other != other;
  if (own_is_nan != other_is_nan) return own_is_nan;
  if (own > other || other > own) return own > other;
  return i < j;
}

template <typename S>
OPSMITH_HOST_DEVICE S least(S a, S b) {
  return a < b ? a : b;
}
template <typename S>
OPSMITH_HOST_DEVICE S most(S a, S b) {
  return a < b ? b : a;
}

template <typename S>
struct Box {
  S x1, y1, x2, y2, area;
};

template <typename T>
OPSMITH_HOST_DEVICE Box<Number<T>> box_at(const T* boxes, int64_t i) {
  const T* own = boxes + 4 * i;
  Box<Number<T>> box = {static_cast<Number<T>>(own[0]), static_cast<Number<T>>(own[1]),
                        static_cast<Number<T>>(own[2]), static_cast<Number<T>>(own[3]), 0};
  box.area = (box.x2 - box.x1) * (box.y2 - box.y1);
  return box;
}

// Intersection over union; NaN for two points, which is above no threshold.
template <typename S>
OPSMITH_HOST_DEVICE S overlap(const Box<S>& a, const Box<S>& b) {
  const S width = most(least(a.x2, b.x2) - most(a.x1, b.x1), S(0));
  const S height = most(least(a.y2, b.y2) - most(a.y1, b.y1), S(0));
  const S both = width * height;
  return both / (a.area + b.area - both);
}

}  // namespace detection
