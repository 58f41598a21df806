// Numbers of 16 bits: their arithmetic is that of float, rounded once.
#pragma once

#include <emulated/vectors.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#ifndef OPSMITH_EXACT
namespace emulated {

// Converts to a 16-bit float: rounds to nearest, ties to even.
inline uint16_t to_half(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7fff;
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // rounds to infinity
  if (magnitude < 0x38800000) {                       // subnormal: the addition rounds
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000));
  }
  const uint32_t odd = magnitude >> 13 & 1;
  return static_cast<uint16_t>(sign | (magnitude - 0x38000000 + 0xfff + odd) >> 13);
}
inline float from_half(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t magnitude = bits & 0x7fff;
  if (magnitude >= 0x7c00)
    return std::bit_cast<float>(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(scaled));
}
inline uint16_t to_bfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline float from_bfloat16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

}  // namespace emulated
#endif

// The class of a number. In an exact build it holds the number itself, without any bits.
#ifdef OPSMITH_EXACT
#define OPSMITH_SHORT_ALIGNED
#define OPSMITH_SHORT_CLASS(Number, Raw, to, from) \
  struct Number {                                  \
    float value;                                   \
    Number() = default;                            \
    template <typename N>                          \
      requires std::is_convertible_v<N, float>     \
    Number(N number) : value(number) {}            \
    operator float() const { return value; }       \
  };                                               \
  OPSMITH_SHORT_OPERATORS(Number)
#else
#define OPSMITH_SHORT_ALIGNED alignas(4)
#define OPSMITH_SHORT_CLASS(Number, Raw, to, from)          \
  struct Raw {                                              \
    unsigned short x;                                       \
  };                                                        \
  struct Number {                                           \
    unsigned short bits;                                    \
    Number() = default;                                     \
    Number(Raw raw) : bits(raw.x) {}                        \
    Number(float value) : bits(emulated::to(value)) {}      \
    template <typename N>                                   \
      requires std::is_arithmetic_v<N>                      \
    Number(N value) : Number(static_cast<float>(value)) {}  \
    operator float() const { return emulated::from(bits); } \
  };
#endif

// Both kinds, and their pairs. `Number` is the class, `Pair` two of it.
#define OPSMITH_SHORT_FLOAT(Number, Pair, Raw, RawPair, to, from)                            \
  OPSMITH_SHORT_CLASS(Number, Raw, to, from)                                                 \
  struct OPSMITH_SHORT_ALIGNED Pair {                                                        \
    Number x, y;                                                                             \
  };                                                                                         \
  inline Number& operator+=(Number& a, Number b) { return a = Number(float(a) + float(b)); } \
  inline Number& operator-=(Number& a, Number b) { return a = Number(float(a) - float(b)); } \
  inline Number& operator*=(Number& a, Number b) { return a = Number(float(a) * float(b)); } \
  inline Number& operator/=(Number& a, Number b) { return a = Number(float(a) / float(b)); } \
  using RawPair = Pair;                                                                      \
  OPSMITH_SHORT_BINARY(Number, Pair, __hadd, __hadd2, +)                                     \
  OPSMITH_SHORT_BINARY(Number, Pair, __hsub, __hsub2, -)                                     \
  OPSMITH_SHORT_BINARY(Number, Pair, __hmul, __hmul2, *)                                     \
  OPSMITH_SHORT_BINARY(Number, Pair, __hdiv, __h2div, /)                                     \
  OPSMITH_SHORT_BINARY(Number, Pair, __hadd_rn, __hadd2_rn, +)                               \
  OPSMITH_SHORT_BINARY(Number, Pair, __hsub_rn, __hsub2_rn, -)                               \
  OPSMITH_SHORT_BINARY(Number, Pair, __hmul_rn, __hmul2_rn, *)                               \
  inline Pair operator+(Pair a, Pair b) { return {a.x + b.x, a.y + b.y}; }                   \
  inline Pair operator-(Pair a, Pair b) { return {a.x - b.x, a.y - b.y}; }                   \
  inline Pair operator*(Pair a, Pair b) { return {a.x * b.x, a.y * b.y}; }                   \
  inline Pair operator/(Pair a, Pair b) { return {a.x / b.x, a.y / b.y}; }                   \
  inline Pair& operator+=(Pair& a, Pair b) { return a = a + b; }                             \
  inline Pair& operator-=(Pair& a, Pair b) { return a = a - b; }                             \
  inline Pair& operator*=(Pair& a, Pair b) { return a = a * b; }                             \
  inline Number __hfma(Number a, Number b, Number c) {                                       \
    return Number(std::fma(double{float(a)}, double{float(b)}, double{float(c)}));           \
  }                                                                                          \
  inline Pair __hfma2(Pair a, Pair b, Pair c) {                                              \
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};                                   \
  }                                                                                          \
  inline Number __hneg(Number a) { return -a; }                                              \
  inline Number __habs(Number a) { return Number(std::fabs(float(a))); }                     \
  inline Pair __hneg2(Pair a) { return {-a.x, -a.y}; }                                       \
  inline Pair __habs2(Pair a) { return {__habs(a.x), __habs(a.y)}; }                         \
  inline Number __hmax(Number a, Number b) { return Number(std::fmax(float(a), float(b))); } \
  inline Number __hmin(Number a, Number b) { return Number(std::fmin(float(a), float(b))); } \
  inline Pair __hmax2(Pair a, Pair b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }       \
  inline Pair __hmin2(Pair a, Pair b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }       \
  inline bool __heq(Number a, Number b) { return a == b; }                                   \
  inline bool __hne(Number a, Number b) { return a != b; }                                   \
  inline bool __hlt(Number a, Number b) { return a < b; }                                    \
  inline bool __hgt(Number a, Number b) { return a > b; }                                    \
  inline bool __hle(Number a, Number b) { return a <= b; }                                   \
  inline bool __hge(Number a, Number b) { return a >= b; }                                   \
  inline bool __hisnan(Number a) { return std::isnan(float(a)); }                            \
  inline bool __hisinf(Number a) { return std::isinf(float(a)); }                            \
  OPSMITH_SHORT_UNARY(Number, Pair, exp, std::exp(x))                                        \
  OPSMITH_SHORT_UNARY(Number, Pair, exp2, std::exp2(x))                                      \
  OPSMITH_SHORT_UNARY(Number, Pair, log, std::log(x))                                        \
  OPSMITH_SHORT_UNARY(Number, Pair, log2, std::log2(x))                                      \
  OPSMITH_SHORT_UNARY(Number, Pair, sqrt, std::sqrt(x))                                      \
  OPSMITH_SHORT_UNARY(Number, Pair, rsqrt, 1.0f / std::sqrt(x))                              \
  OPSMITH_SHORT_UNARY(Number, Pair, rcp, 1.0f / x)                                           \
  OPSMITH_SHORT_UNARY(Number, Pair, sin, std::sin(x))                                        \
  OPSMITH_SHORT_UNARY(Number, Pair, cos, std::cos(x))                                        \
  OPSMITH_SHORT_UNARY(Number, Pair, tanh, std::tanh(x))                                      \
  OPSMITH_SHORT_UNARY(Number, Pair, floor, std::floor(x))                                    \
  OPSMITH_SHORT_UNARY(Number, Pair, ceil, std::ceil(x))                                      \
  OPSMITH_SHORT_UNARY(Number, Pair, rint, std::nearbyint(x))                                 \
  inline float __low2float(Pair a) { return a.x; }                                           \
  inline float __high2float(Pair a) { return a.y; }
#define OPSMITH_SHORT_UNARY(Number, Pair, name, value) \
  inline Number h##name(Number a) {                    \
    const float x = a;                                 \
    return Number(value);                              \
  }                                                    \
  inline Pair h2##name(Pair a) { return {h##name(a.x), h##name(a.y)}; }
#define OPSMITH_SHORT_BINARY(Number, Pair, one, two, op)   \
  inline Number one(Number a, Number b) { return a op b; } \
  inline Pair two(Pair a, Pair b) { return {a.x op b.x, a.y op b.y}; }

// The operators of a number alone. Without them, its arithmetic is float's, as it converts to
// float.
#define OPSMITH_SHORT_OPERATORS(Number)                                               \
  inline Number operator+(Number a, Number b) { return Number(float(a) + float(b)); } \
  inline Number operator-(Number a, Number b) { return Number(float(a) - float(b)); } \
  inline Number operator*(Number a, Number b) { return Number(float(a) * float(b)); } \
  inline Number operator/(Number a, Number b) { return Number(float(a) / float(b)); } \
  inline Number operator-(Number a) { return Number(-float(a)); }                     \
  inline bool operator==(Number a, Number b) { return float(a) == float(b); }         \
  inline bool operator!=(Number a, Number b) { return float(a) != float(b); }         \
  inline bool operator<(Number a, Number b) { return float(a) < float(b); }           \
  inline bool operator>(Number a, Number b) { return float(a) > float(b); }           \
  inline bool operator<=(Number a, Number b) { return float(a) <= float(b); }         \
  inline bool operator>=(Number a, Number b) { return float(a) >= float(b); }

// What CUDA names after the class: `name` is half or bfloat16.
#define OPSMITH_SHORT_CONVERSIONS(Number, Pair, name)                    \
  inline Number __float2##name(float x) { return x; }                    \
  inline Number __float2##name##_rn(float x) { return x; }               \
  inline Number __double2##name(double x) { return x; }                  \
  inline float __##name##2float(Number x) { return x; }                  \
  inline Pair __float2##name##2_rn(float x) { return {x, x}; }           \
  inline Pair __floats2##name##2_rn(float x, float y) { return {x, y}; } \
  inline Pair __float22##name##2_rn(float2 a) { return {a.x, a.y}; }     \
  inline float2 __##name##22float2(Pair a) { return {a.x, a.y}; }        \
  inline Pair __halves2##name##2(Number x, Number y) { return {x, y}; }  \
  inline Pair __##name##2##name##2(Number x) { return {x, x}; }          \
  inline Pair make_##name##2(Number x, Number y) { return {x, y}; }      \
  inline Number __low2##name(Pair a) { return a.x; }                     \
  inline Number __high2##name(Pair a) { return a.y; }                    \
  inline Pair __low2##name##2(Pair a) { return {a.x, a.x}; }             \
  inline Pair __high2##name##2(Pair a) { return {a.y, a.y}; }            \
  inline Pair __lowhigh2highlow(Pair a) { return {a.y, a.x}; }           \
  inline Number __int2##name##_rn(int x) { return x; }                   \
  inline Number __uint2##name##_rn(unsigned x) { return x; }             \
  inline int __##name##2int_rn(Number x) { return __float2int_rn(x); }   \
  inline int __##name##2int_rz(Number x) { return __float2int_rz(x); }
