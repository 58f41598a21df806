// Functions for all element types: real, half and complex numbers under one name.
//
// std::abs, std::exp and so on do not accept half numbers or PyTorch's complex numbers, and
// std::conj returns a complex number for a real one. Here the result has the type of the argument,
// except for functions such as the absolute value of a complex number, which return a real number.
#pragma once

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>
#include <torch/headeronly/util/complex.h>

#include <cmath>
#include <complex>
#include <cstdint>
#include <type_traits>

#ifdef OPSMITH_EXACT  // the file with elements that are never rounded
#include OPSMITH_EXACT
#endif

#ifdef __CUDACC__
#define OPSMITH_HOST_DEVICE __host__ __device__
#else
#define OPSMITH_HOST_DEVICE
#endif

namespace opsmith {

#ifdef OPSMITH_EXACT
using half = exact::Half;
using bfloat16 = exact::Bfloat16;
#else
using half = c10::Half;
using bfloat16 = c10::BFloat16;
#endif
template <typename T>
using complex = c10::complex<T>;
using complex64 = c10::complex<float>;
using complex128 = c10::complex<double>;

// Division and remainder that round towards negative infinity, as Python's // and % do.
OPSMITH_HOST_DEVICE constexpr int64_t floor_div(int64_t a, int64_t b) {
  return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}
OPSMITH_HOST_DEVICE constexpr int64_t floor_mod(int64_t a, int64_t b) {
  return a - floor_div(a, b) * b;
}

template <typename T>
inline constexpr bool is_complex = std::is_same_v<T, complex64> || std::is_same_v<T, complex128>;

template <typename T>
OPSMITH_HOST_DEVICE constexpr auto real(T value) {
  if constexpr (is_complex<T>) {
    return value.real();
  } else {
    return value;
  }
}

template <typename T>
OPSMITH_HOST_DEVICE constexpr auto imag(T value) {
  if constexpr (is_complex<T>) {
    return value.imag();
  } else {
    return T(0);
  }
}

template <typename T>
OPSMITH_HOST_DEVICE constexpr T conj(T value) {
  if constexpr (is_complex<T>) {
    return T(value.real(), -value.imag());
  } else {
    return value;
  }
}

// The square of the absolute value.
template <typename T>
OPSMITH_HOST_DEVICE constexpr auto norm(T value) {
  if constexpr (is_complex<T>) {
    return value.real() * value.real() + value.imag() * value.imag();
  } else {
    return static_cast<T>(value * value);
  }
}

namespace detail {

// Half numbers are computed as float; complex numbers with the host's std::complex.
template <typename T>
OPSMITH_HOST_DEVICE auto computed(T value) {
  if constexpr (is_complex<T>) {
    return std::complex<typename T::value_type>(value.real(), value.imag());
#ifdef OPSMITH_EXACT
  } else if constexpr (exact::is_number<T>) {
    return value;
#endif
  } else if constexpr (std::is_same_v<T, half> || std::is_same_v<T, bfloat16>) {
    return static_cast<float>(value);
  } else {
    return value;
  }
}

template <typename T, typename Value>
OPSMITH_HOST_DEVICE T stored(Value value) {
  if constexpr (is_complex<T>) {
    return T(value.real(), value.imag());
  } else {
    return static_cast<T>(value);
  }
}

}  // namespace detail

template <typename T>
OPSMITH_HOST_DEVICE auto abs(T value) {
  if constexpr (is_complex<T>) {
    return std::hypot(value.real(), value.imag());
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(value < T(0) ? -value : value);
  } else {
    return static_cast<T>(std::fabs(detail::computed(value)));
  }
}

// The angle of a complex number; 0 or pi for a real one.
template <typename T>
OPSMITH_HOST_DEVICE auto arg(T value) {
  if constexpr (is_complex<T>) {
    return std::atan2(value.imag(), value.real());
  } else {
    using Value = decltype(detail::computed(value));
    return static_cast<T>(std::atan2(Value(0), detail::computed(value)));
  }
}

// For complex numbers, on the host only.
#define OPSMITH_FUNCTION(name)                                    \
  template <typename T>                                           \
  OPSMITH_HOST_DEVICE T name(T value) {                           \
    return detail::stored<T>(std::name(detail::computed(value))); \
  }
OPSMITH_FUNCTION(exp)
OPSMITH_FUNCTION(log)
OPSMITH_FUNCTION(sqrt)
OPSMITH_FUNCTION(sin)
OPSMITH_FUNCTION(cos)
OPSMITH_FUNCTION(tan)
OPSMITH_FUNCTION(sinh)
OPSMITH_FUNCTION(cosh)
OPSMITH_FUNCTION(tanh)
#undef OPSMITH_FUNCTION

template <typename T>
OPSMITH_HOST_DEVICE T pow(T base, std::type_identity_t<T> exponent) {
  return detail::stored<T>(std::pow(detail::computed(base), detail::computed(exponent)));
}

}  // namespace opsmith
