// The element types: opsmith's list, in the order and with the codes that other files rely on.
#pragma once

#include <torch/headeronly/util/Float8_e4m3fn.h>
#include <torch/headeronly/util/Float8_e5m2.h>

#include <cstdint>
#include <string>

#include <opsmith/abi.h>
#include <opsmith/math.h>

namespace opsmith {

using float8_e4m3fn = c10::Float8_e4m3fn;
using float8_e5m2 = c10::Float8_e5m2;

namespace detail {

constexpr uint32_t dtype_key(DLDataType type) {
  return static_cast<uint32_t>(type.code) << 8 | type.bits;
}

// The real floating types. In an exact build their elements are numbers that are never rounded,
// with codes of opsmith's own.
#ifdef OPSMITH_EXACT
#define OPSMITH_REALS(X)                                    \
  X(6, half, 66, 8 * sizeof(half), float16)                 \
  X(7, bfloat16, 67, 8 * sizeof(bfloat16), bfloat16)        \
  X(8, exact::Float, 68, 8 * sizeof(exact::Float), float32) \
  X(9, exact::Double, 69, 8 * sizeof(exact::Double), float64)
#else
#define OPSMITH_REALS(X)          \
  X(6, half, 2, 16, float16)      \
  X(7, bfloat16, 4, 16, bfloat16) \
  X(8, float, 2, 32, float32)     \
  X(9, double, 2, 64, float64)
#endif

// The columns: position in sets of dtypes, type, DLPack's code and bits, name.
#define OPSMITH_DTYPES(X)                    \
  X(0, bool, 6, 8, bool)                     \
  X(1, uint8_t, 1, 8, uint8)                 \
  X(2, int8_t, 0, 8, int8)                   \
  X(3, int16_t, 0, 16, int16)                \
  X(4, int32_t, 0, 32, int32)                \
  X(5, int64_t, 0, 64, int64)                \
  OPSMITH_REALS(X)                           \
  X(10, complex64, 5, 64, complex64)         \
  X(11, complex128, 5, 128, complex128)      \
  X(12, float8_e4m3fn, 10, 8, float8_e4m3fn) \
  X(13, float8_e5m2, 12, 8, float8_e5m2)     \
  X(14, uint16_t, 1, 16, uint16)             \
  X(15, uint32_t, 1, 32, uint32)             \
  X(16, uint64_t, 1, 64, uint64)

template <typename T>
struct dtype_traits;

#define OPSMITH_TRAITS(position, type, code_, bits_, name_)       \
  template <>                                                     \
  struct dtype_traits<type> {                                     \
    static constexpr DLDataType value = {code_, bits_, 1};        \
    static constexpr uint32_t key = dtype_key({code_, bits_, 1}); \
    static constexpr const char* name = #name_;                   \
  };
OPSMITH_DTYPES(OPSMITH_TRAITS)
#undef OPSMITH_TRAITS
#ifdef OPSMITH_EXACT
// For headers that name a fixed dtype by the type of C++.
template <>
struct dtype_traits<float> : dtype_traits<exact::Float> {};
template <>
struct dtype_traits<double> : dtype_traits<exact::Double> {};
#endif

constexpr const char* dtype_name(DLDataType type) {
  switch (dtype_key(type)) {
#define OPSMITH_NAME(position, type, code_, bits_, name_) \
  case dtype_traits<type>::key:                           \
    return dtype_traits<type>::name;
    OPSMITH_DTYPES(OPSMITH_NAME)
#undef OPSMITH_NAME
    // A runtime may pass further dtypes that declarations cannot name: they occur in messages only.
    case 5 << 8 | 32:
      return "complex32";
    case 11 << 8 | 8:
      return "float8_e4m3fnuz";
    case 13 << 8 | 8:
      return "float8_e5m2fnuz";
    default:
      return "unknown";
  }
}

// The position of a dtype in opsmith's list, for sets of dtypes as bits; 31 for other dtypes.
constexpr uint32_t dtype_bit(DLDataType type) {
  switch (dtype_key(type)) {
#define OPSMITH_BIT(position, type, code_, bits_, name_) \
  case dtype_traits<type>::key:                          \
    return position;
    OPSMITH_DTYPES(OPSMITH_BIT)
#undef OPSMITH_BIT
    default:
      return 31;
  }
}

// The complex dtype of the same precision as a real one, and the other way round.
constexpr DLDataType complex_dtype(DLDataType real) {
  return {5, static_cast<uint8_t>(2 * real.bits), real.lanes};
}
constexpr DLDataType real_dtype(DLDataType complex) {
  if (complex.code != 5) return {255, 0, 0};
  return {2, static_cast<uint8_t>(complex.bits / 2), complex.lanes};
}

}  // namespace detail
}  // namespace opsmith
