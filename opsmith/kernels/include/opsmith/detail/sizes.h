// Sizes that are known at run time, and the arithmetic of shape expressions.
#pragma once

#include <opsmith/abi.h>
#include <opsmith/math.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>

namespace opsmith::detail {

inline constexpr int32_t max_dims = 64;

// A size known only at run time; big enough for every tensor that PyTorch can make.
struct Sizes {
  int32_t count = 0;
  int64_t values[max_dims];
};

inline bool is_contiguous(const DLTensor& tensor) {
  int64_t expected = 1;
  bool contiguous = true;
  for (int32_t i = tensor.ndim - 1; i >= 0; --i) {
    if (tensor.shape[i] == 0) return true;
    contiguous &= tensor.shape[i] == 1 || tensor.strides[i] == expected;
    expected *= tensor.shape[i];
  }
  return contiguous;
}

inline int64_t numel(const DLTensor& tensor) {
  int64_t count = 1;
  for (int32_t i = 0; i < tensor.ndim; ++i) count *= tensor.shape[i];
  return count;
}

// Describes contiguous memory. `strides` has room for `ndim` numbers.
inline DLTensor contiguous(void* data, DLDevice device, DLDataType dtype, int64_t* shape,
                           int32_t ndim, int64_t* strides) {
  int64_t stride = 1;
  for (int32_t i = ndim - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= std::max<int64_t>(shape[i], 1);
  }
  return {data, device, ndim, dtype, shape, strides, 0};
}

// Arithmetic of shape expressions: an overflow or a division by zero is an error, never a crash.
inline int64_t add(int64_t a, int64_t b) {
  int64_t result;
  if (__builtin_add_overflow(a, b, &result)) throw std::runtime_error("a size overflows 64 bits");
  return result;
}
inline int64_t sub(int64_t a, int64_t b) {
  int64_t result;
  if (__builtin_sub_overflow(a, b, &result)) throw std::runtime_error("a size overflows 64 bits");
  return result;
}
inline int64_t mul(int64_t a, int64_t b) {
  int64_t result;
  if (__builtin_mul_overflow(a, b, &result)) throw std::runtime_error("a size overflows 64 bits");
  return result;
}
struct zero_division : std::runtime_error {
  zero_division() : std::runtime_error("a size is divided by zero") {}
};
inline int64_t div(int64_t a, int64_t b) {
  if (b == 0) throw zero_division();
  return b == -1 ? sub(0, a) : floor_div(a, b);
}
inline int64_t mod(int64_t a, int64_t b) {
  if (b == 0) throw zero_division();
  return b == -1 ? 0 : floor_mod(a, b);
}

// Sums and products of sizes, which saturate at the largest number instead of wrapping around.
inline int64_t saturating_add(int64_t a, int64_t b) {
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}
inline int64_t saturating_mul(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<int64_t>::max() : product;
}

}  // namespace opsmith::detail
