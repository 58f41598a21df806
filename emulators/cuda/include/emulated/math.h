// CUDA's arithmetic functions. Functions that are less accurate on a device are as accurate here as
// on the host, so that results of checks do not depend on the inaccuracy of a device.
#pragma once

#include <math.h>
#include <stdlib.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace emulated {
template <typename A, typename B>
concept both_native = std::is_arithmetic_v<A> && std::is_arithmetic_v<B>;
// Numbers of 16 bits convert to float, as in CUDA.
template <typename A, typename B>
concept both_as_float = !both_native<A, B> && (std::is_class_v<A> || std::is_class_v<B>) &&
                        std::is_convertible_v<A, float> && std::is_convertible_v<B, float>;
}  // namespace emulated

// Declared in the global namespace, and for two different types, as in CUDA.
#define OPSMITH_EXTREME(name)                                          \
  template <typename A, typename B>                                    \
    requires(emulated::both_native<A, B>)                              \
  constexpr std::common_type_t<A, B> name(A a, B b) {                  \
    using T = std::common_type_t<A, B>;                                \
    if constexpr (std::is_floating_point_v<T>)                         \
      return std::f##name(static_cast<T>(a), static_cast<T>(b));       \
    else                                                               \
      return std::name(static_cast<T>(a), static_cast<T>(b));          \
  }                                                                    \
  template <typename A, typename B>                                    \
    requires(emulated::both_as_float<A, B>)                            \
  float name(A a, B b) {                                               \
    return std::f##name(static_cast<float>(a), static_cast<float>(b)); \
  }
OPSMITH_EXTREME(min)
OPSMITH_EXTREME(max)
#undef OPSMITH_EXTREME

using std::isfinite;
using std::isinf;
using std::isnan;
using std::signbit;

inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline float rcbrtf(float x) { return 1.0f / std::cbrt(x); }
inline double rcbrt(double x) { return 1.0 / std::cbrt(x); }
inline float sinpif(float x) { return static_cast<float>(std::sin(M_PI * x)); }
inline float cospif(float x) { return static_cast<float>(std::cos(M_PI * x)); }
inline double sinpi(double x) { return std::sin(M_PI * x); }
inline double cospi(double x) { return std::cos(M_PI * x); }
inline void sincospi(double x, double* sine, double* cosine) {
  *sine = sinpi(x);
  *cosine = cospi(x);
}
inline void sincospif(float x, float* sine, float* cosine) {
  *sine = sinpif(x);
  *cosine = cospif(x);
}
inline double rhypot(double x, double y) { return 1.0 / std::hypot(x, y); }
inline float rhypotf(float x, float y) { return 1.0f / std::hypot(x, y); }
#ifndef OPSMITH_EXACT  // these have no law
inline float normf(int count, const float* x) {
  double sum = 0;
  for (int i = 0; i < count; ++i) sum = std::hypot(sum, double{x[i]});
  return static_cast<float>(sum);
}
inline float rnormf(int count, const float* x) { return 1.0f / normf(count, x); }
// The inverse by Halley's method.
inline double erfcinv(double z) {
  if (!(z > 0 && z < 2)) return z == 0 ? HUGE_VAL : z == 2 ? -HUGE_VAL : NAN;
  if (z > 1) return -erfcinv(2 - z);
  const double log = std::log(z * (2 - z)), term = 4.33 + log / 2;
  double x = std::sqrt(std::sqrt(term * term - log / 0.147) - term);
  for (int i = 0; i < 4; ++i) {
    const double error = std::erfc(x) - z;
    x += error / (M_2_SQRTPI * std::exp(-x * x) - x * error);
  }
  return x;
}
inline double erfinv(double y) {
  if (!(std::fabs(y) < 0.5)) return std::copysign(erfcinv(1 - std::fabs(y)), y);
  double x = y / M_2_SQRTPI;
  for (int i = 0; i < 4; ++i) {
    const double error = std::erf(x) - y;
    x -= error / (M_2_SQRTPI * std::exp(-x * x) + x * error);
  }
  return x;
}
inline double normcdfinv(double x) { return -M_SQRT2 * erfcinv(2 * x); }
inline double erfcx(double x) {
  if (x < 6) return std::exp(x * x) * std::erfc(x);
  double term = M_2_SQRTPI / 2 / x, sum = term;
  for (int k = 1; k < 60; k += 2) sum += term *= -k / (2 * x * x);
  return sum;
}
inline double cyl_bessel_i0(double x) { return std::cyl_bessel_i(0, std::fabs(x)); }
inline double cyl_bessel_i1(double x) {
  return std::copysign(std::cyl_bessel_i(1, std::fabs(x)), x);
}
#define OPSMITH_IN_FLOAT(name) \
  inline float name##f(float x) { return static_cast<float>(name(double{x})); }
OPSMITH_IN_FLOAT(erfcinv)
OPSMITH_IN_FLOAT(erfinv)
OPSMITH_IN_FLOAT(normcdfinv)
OPSMITH_IN_FLOAT(erfcx)
OPSMITH_IN_FLOAT(cyl_bessel_i0)
OPSMITH_IN_FLOAT(cyl_bessel_i1)
#undef OPSMITH_IN_FLOAT
namespace emulated {
inline double norm(double x, double y, double z, double w) {
  return std::hypot(std::hypot(x, y), std::hypot(z, w));
}
}  // namespace emulated
inline double norm3d(double x, double y, double z) { return emulated::norm(x, y, z, 0); }
inline double norm4d(double x, double y, double z, double w) { return emulated::norm(x, y, z, w); }
inline double rnorm3d(double x, double y, double z) { return 1 / emulated::norm(x, y, z, 0); }
inline double rnorm4d(double x, double y, double z, double w) {
  return 1 / emulated::norm(x, y, z, w);
}
inline float norm3df(float x, float y, float z) { return float(emulated::norm(x, y, z, 0)); }
inline float norm4df(float x, float y, float z, float w) {
  return float(emulated::norm(x, y, z, w));
}
inline float rnorm3df(float x, float y, float z) { return float(1 / emulated::norm(x, y, z, 0)); }
inline float rnorm4df(float x, float y, float z, float w) {
  return float(1 / emulated::norm(x, y, z, w));
}
#endif
inline float normcdff(float x) { return 0.5f * std::erfc(-x * 0.70710678f); }
inline double normcdf(double x) { return 0.5 * std::erfc(-x * 0.70710678118654752); }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

inline float __expf(float x) { return std::exp(x); }
inline float __exp10f(float x) { return static_cast<float>(std::pow(10.0, x)); }
inline float __logf(float x) { return std::log(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __log10f(float x) { return std::log10(x); }
inline float __powf(float x, float y) { return std::pow(x, y); }
inline float __sinf(float x) { return std::sin(x); }
inline float __cosf(float x) { return std::cos(x); }
inline float __tanf(float x) { return std::tan(x); }
inline float __tanhf(float x) { return std::tanh(x); }
inline void __sincosf(float x, float* sine, float* cosine) {
  *sine = std::sin(x);
  *cosine = std::cos(x);
}
inline float __fdividef(float x, float y) { return x / y; }
inline float fdividef(float x, float y) { return x / y; }
inline float __frsqrt_rn(float x) { return 1.0f / std::sqrt(x); }

// The host rounds to nearest; the other directions round the exact result.
#ifndef OPSMITH_EXACT
namespace emulated {
template <typename T, typename Wide>
T rounded(Wide exact, int direction) {
  const T near = static_cast<T>(exact);
  const auto wide = static_cast<Wide>(near);
  const T infinity = std::numeric_limits<T>::infinity();
  if (direction < 0 && wide > exact) return std::nextafter(near, -infinity);
  if (direction > 0 && wide < exact) return std::nextafter(near, infinity);
  if (direction == 0) {
    if (exact > 0 && wide > exact) return std::nextafter(near, -infinity);
    if (exact < 0 && wide < exact) return std::nextafter(near, infinity);
  }
  return near;
}
}  // namespace emulated

#define OPSMITH_ROUNDED(name, op)                                \
  inline float __f##name##_rz(float a, float b) {                \
    return emulated::rounded<float>(double{a} op double{b}, 0);  \
  }                                                              \
  inline float __f##name##_rd(float a, float b) {                \
    return emulated::rounded<float>(double{a} op double{b}, -1); \
  }                                                              \
  inline float __f##name##_ru(float a, float b) {                \
    return emulated::rounded<float>(double{a} op double{b}, 1);  \
  }
OPSMITH_ROUNDED(add, +)
OPSMITH_ROUNDED(sub, -)
OPSMITH_ROUNDED(mul, *)
OPSMITH_ROUNDED(div, /)
#undef OPSMITH_ROUNDED
inline float __double2float_rz(double x) { return emulated::rounded<float>(x, 0); }
#endif

#define OPSMITH_BINARY(name, op)                                   \
  inline float __f##name##_rn(float a, float b) { return a op b; } \
  inline double __d##name##_rn(double a, double b) { return a op b; }
OPSMITH_BINARY(add, +)
OPSMITH_BINARY(sub, -)
OPSMITH_BINARY(mul, *)
OPSMITH_BINARY(div, /)
#undef OPSMITH_BINARY
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline double __drcp_rn(double x) { return 1.0 / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline double __dsqrt_rn(double x) { return std::sqrt(x); }

// Conversions saturate on a device, and give 0 for NaN.
namespace emulated {
template <typename Int, typename Float>
Int to_integer(Float value) {
  if (std::isnan(value)) return 0;
#ifdef OPSMITH_EXACT
  const auto wide = value.near();
#else
  const long double wide = value;
#endif
  if (wide <= static_cast<decltype(wide)>(std::numeric_limits<Int>::min())) {
    return std::numeric_limits<Int>::min();
  }
  if (wide >= static_cast<decltype(wide)>(std::numeric_limits<Int>::max())) {
    return std::numeric_limits<Int>::max();
  }
  return static_cast<Int>(value);
}
}  // namespace emulated

#define OPSMITH_TO_INTEGER(name, Float, Int)                                             \
  inline Int name##_rn(Float x) { return emulated::to_integer<Int>(std::nearbyint(x)); } \
  inline Int name##_rz(Float x) { return emulated::to_integer<Int>(std::trunc(x)); }     \
  inline Int name##_rd(Float x) { return emulated::to_integer<Int>(std::floor(x)); }     \
  inline Int name##_ru(Float x) { return emulated::to_integer<Int>(std::ceil(x)); }
OPSMITH_TO_INTEGER(__float2int, float, int)
OPSMITH_TO_INTEGER(__float2uint, float, unsigned)
OPSMITH_TO_INTEGER(__float2ll, float, long long)
OPSMITH_TO_INTEGER(__float2ull, float, unsigned long long)
OPSMITH_TO_INTEGER(__double2int, double, int)
OPSMITH_TO_INTEGER(__double2uint, double, unsigned)
OPSMITH_TO_INTEGER(__double2ll, double, long long)
OPSMITH_TO_INTEGER(__double2ull, double, unsigned long long)
#undef OPSMITH_TO_INTEGER
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __ll2float_rn(long long x) { return static_cast<float>(x); }
inline float __ull2float_rn(unsigned long long x) { return static_cast<float>(x); }
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }
inline double __ll2double_rn(long long x) { return static_cast<double>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }

#ifndef OPSMITH_EXACT  // numbers that are never rounded have no bits
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline int __double2hiint(double x) { return static_cast<int>(std::bit_cast<uint64_t>(x) >> 32); }
inline int __double2loint(double x) { return static_cast<int>(std::bit_cast<uint64_t>(x)); }
inline double __hiloint2double(int high, int low) {
  return std::bit_cast<double>(uint64_t{static_cast<unsigned>(high)} << 32 |
                               static_cast<unsigned>(low));
}
#endif

#define OPSMITH_LEAST_AND_MOST(prefix, type)                        \
  inline type prefix##min(type a, type b) { return b < a ? b : a; } \
  inline type prefix##max(type a, type b) { return a < b ? b : a; }
OPSMITH_LEAST_AND_MOST(u, unsigned)
OPSMITH_LEAST_AND_MOST(ll, long long)
OPSMITH_LEAST_AND_MOST(ull, unsigned long long)
#undef OPSMITH_LEAST_AND_MOST

inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline unsigned __brev(unsigned x) {
  unsigned result = 0;
  for (int i = 0; i < 32; ++i) result |= (x >> i & 1u) << (31 - i);
  return result;
}
inline unsigned long long __brevll(unsigned long long x) {
  return static_cast<unsigned long long>(__brev(static_cast<unsigned>(x))) << 32 |
         __brev(static_cast<unsigned>(x >> 32));
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const uint64_t bytes = uint64_t{y} << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned choice = selector >> (4 * i) & 0xf;
    auto byte = static_cast<unsigned>(bytes >> (8 * (choice & 7)) & 0xff);
    if ((choice & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
    result |= byte << (8 * i);
  }
  return result;
}
namespace emulated {
// Adds the products of four pairs of bytes to c; the sum wraps.
template <typename Byte>
unsigned dot_of_bytes(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 32; i += 8) {
    c += static_cast<unsigned>(static_cast<Byte>(a >> i) * static_cast<Byte>(b >> i));
  }
  return c;
}
}  // namespace emulated
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  return emulated::dot_of_bytes<unsigned char>(a, b, c);
}
inline int __dp4a(int a, int b, int c) {
  return static_cast<int>(emulated::dot_of_bytes<signed char>(
      static_cast<unsigned>(a), static_cast<unsigned>(b), static_cast<unsigned>(c)));
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>(((uint64_t{high} << 32 | low) << (shift & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((uint64_t{high} << 32 | low) >> (shift & 31));
}
inline int __mul24(int a, int b) {
  return static_cast<int>(static_cast<int64_t>(a << 8 >> 8) * (b << 8 >> 8));
}
inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffff) * (b & 0xffffff); }
inline int __mulhi(int a, int b) { return static_cast<int>(int64_t{a} * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(uint64_t{a} * b >> 32);
}
inline long long __mul64hi(long long a, long long b) {
  return static_cast<long long>(static_cast<__int128>(a) * b >> 64);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline int __hadd(int a, int b) { return static_cast<int>((int64_t{a} + b) >> 1); }
inline int __rhadd(int a, int b) { return static_cast<int>((int64_t{a} + b + 1) >> 1); }
inline unsigned __sad(int a, int b, unsigned c) {
  return static_cast<unsigned>(std::llabs(int64_t{a} - b)) + c;
}
inline unsigned __usad(unsigned a, unsigned b, unsigned c) { return (a < b ? b - a : a - b) + c; }
