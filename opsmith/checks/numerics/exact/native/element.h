// `Number`, which replaces float, double and the half types in a kernel's source, with the
// operators and functions of these types.
#pragma once

#include "functions.h"
#include "handles.h"

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <numeric>
#include <type_traits>

namespace opsmith::exact {

// What a number is in memory.
#ifdef OPSMITH_EXACT_HANDLES
inline constexpr bool has_handles = true;
template <Kind kind>
using Stored =
    std::conditional_t<kind == Kind::twofold, Packed,
                       Handle<std::conditional_t<kind == Kind::single, uint32_t, uint16_t>>>;
#else
inline constexpr bool has_handles = false;
template <Kind kind>
using Stored = Packed;
#endif

template <Kind kind>
class Number : public Stored<kind> {
  using Base = Stored<kind>;

 public:
  constexpr Number() = default;
  constexpr explicit Number(const Content& content) : Base(Packed(content)) {}
  template <native N>
  constexpr Number(N number)
      : Base(Packed(static_cast<double>(number), std::is_same_v<N, float>)) {}
  template <Kind other>
  constexpr Number(const Number<other>& number) : Base(number.packed()) {}

  template <std::integral N>
  constexpr explicit operator N() const {
    if constexpr (std::is_same_v<N, bool>) {
      return this->near() != 0;
    } else {
      return static_cast<N>(std::is_constant_evaluated() ? this->near()
                                                         : functions::trunc(*this).value);
    }
  }

  // For messages alone.
  template <std::same_as<double> N>
  constexpr explicit operator N() const {
    return this->near();
  }

  constexpr Number operator+() const { return *this; }
  constexpr Number operator-() const {
    const Packed own = this->packed();
    return own.is_written() ? Number(own.opposite()) : Number(negative(*this));
  }
#define OPSMITH_EXACT_CHANGE(change, sign)            \
  template <typename N>                               \
  constexpr Number& operator change(const N& other) { \
    return *this = *this sign other;                  \
  }
  OPSMITH_EXACT_CHANGE(+=, +)
  OPSMITH_EXACT_CHANGE(-=, -)
  OPSMITH_EXACT_CHANGE(*=, *)
  OPSMITH_EXACT_CHANGE(/=, /)
#undef OPSMITH_EXACT_CHANGE
  constexpr Number& operator++() { return *this = *this + 1; }
  constexpr Number& operator--() { return *this = *this - 1; }
  constexpr Number operator++(int) {
    const Number before = *this;
    *this = *this + 1;
    return before;
  }
  constexpr Number operator--(int) {
    const Number before = *this;
    *this = *this - 1;
    return before;
  }
};

using Half = Number<Kind::half>;
using Bfloat16 = Number<Kind::bfloat16>;
using Float = Number<Kind::single>;
using Double = Number<Kind::twofold>;
static_assert(sizeof(Double) == 16 && std::is_trivially_copyable_v<Double>);

template <typename N>
inline constexpr bool is_number = false;
template <Kind kind>
inline constexpr bool is_number<Number<kind>> = true;
template <typename N>
concept number = is_number<N>;

// The kind of a sum: the wider one, float for the two half types, as C++ has it for its own types.
constexpr Kind wider(Kind a, Kind b) {
  if (a == b) return a;
  if (a <= Kind::bfloat16 && b <= Kind::bfloat16) return Kind::single;
  return a > b ? a : b;
}
template <typename N>
constexpr Kind kind_of(Kind beside) {
  if (std::is_same_v<N, float>) return wider(beside, Kind::single);
  return std::is_integral_v<N> ? beside : Kind::twofold;
}

#define OPSMITH_EXACT_OPERATOR(sign, function)                                            \
  template <Kind a, Kind b>                                                               \
  constexpr Number<wider(a, b)> operator sign(const Number<a>& x, const Number<b>& y) {   \
    if (std::is_constant_evaluated()) return Number<wider(a, b)>(x.near() sign y.near()); \
    return Number<wider(a, b)>(function(x, y));                                           \
  }                                                                                       \
  template <Kind a, native N>                                                             \
  constexpr Number<kind_of<N>(a)> operator sign(const Number<a>& x, N y) {                \
    return Number<kind_of<N>(a)>(x) sign Number<kind_of<N>(a)>(y);                        \
  }                                                                                       \
  template <native N, Kind b>                                                             \
  constexpr Number<kind_of<N>(b)> operator sign(N x, const Number<b>& y) {                \
    return Number<kind_of<N>(b)>(x) sign Number<kind_of<N>(b)>(y);                        \
  }
OPSMITH_EXACT_OPERATOR(+, add)
OPSMITH_EXACT_OPERATOR(-, subtract)
OPSMITH_EXACT_OPERATOR(*, multiply)
OPSMITH_EXACT_OPERATOR(/, divide)
#undef OPSMITH_EXACT_OPERATOR

#define OPSMITH_EXACT_COMPARISON(sign, holds)                            \
  template <Kind a, Kind b>                                              \
  constexpr bool operator sign(const Number<a>& x, const Number<b>& y) { \
    if (std::is_constant_evaluated()) return x.near() sign y.near();     \
    const int found = order(x, y);                                       \
    return holds;                                                        \
  }                                                                      \
  template <Kind a, native N>                                            \
  constexpr bool operator sign(const Number<a>& x, N y) {                \
    return x sign Double(y);                                             \
  }                                                                      \
  template <native N, Kind b>                                            \
  constexpr bool operator sign(N x, const Number<b>& y) {                \
    return Double(x) sign y;                                             \
  }
OPSMITH_EXACT_COMPARISON(<, found == -1)
OPSMITH_EXACT_COMPARISON(>, found == 1)
OPSMITH_EXACT_COMPARISON(<=, found == -1 || found == 0)
OPSMITH_EXACT_COMPARISON(>=, found == 1 || found == 0)
OPSMITH_EXACT_COMPARISON(==, found == 0)
OPSMITH_EXACT_COMPARISON(!=, found != 0)
#undef OPSMITH_EXACT_COMPARISON

// A cast between pointers to two types, or a copy, is allowed if it shows no bits of a number: raw
// storage becomes numbers, an address an integer, and a class that begins with a number may stand
// for several (what CUDA calls float4).
template <typename A>
inline constexpr bool is_storage = std::is_void_v<A> || std::is_same_v<A, char> ||
                                   std::is_same_v<A, unsigned char> || std::is_same_v<A, std::byte>;
template <typename A, typename B>
concept begins_with = std::is_class_v<A> && !is_number<A> && requires(B number) { A{number}; };
template <typename A, typename B>
constexpr bool shows_bits() {
  // Ascend C passes bytes on as addresses, and the bytes of a place say nothing.
  if (has_handles && (is_storage<A> || is_storage<B>)) return false;
  if (std::is_same_v<A, B> || !(is_number<A> || is_number<B>)) return false;
  return !(begins_with<A, B> || begins_with<B, A>);
}
template <typename To, typename From>
To* memcpy_of(To* to, const From* from, std::size_t bytes) {
  using A = std::remove_cv_t<To>;
  using B = std::remove_cv_t<From>;
  static_assert(std::is_void_v<A> || std::is_void_v<B> || !shows_bits<A, B>(),
                "opsmith exact: memcpy between a number and another type");
  std::memmove(to, from, bytes);
  return to;
}
template <typename To, typename From>
To recast(From&& from) {
  using A = std::remove_cv_t<std::remove_pointer_t<std::remove_reference_t<To>>>;
  using B = std::remove_cv_t<std::remove_pointer_t<std::remove_reference_t<From>>>;
  constexpr bool address = std::is_integral_v<To> || std::is_integral_v<std::decay_t<From>>;
  static_assert(address || is_storage<B> || !shows_bits<A, B>(),
                "opsmith exact: reinterpret_cast between a number and another type");
  return reinterpret_cast<To>(std::forward<From>(from));
}

}  // namespace opsmith::exact

namespace std {

#define OPSMITH_EXACT_ONE_AS(name, called)                                      \
  template <opsmith::exact::Kind a>                                             \
  inline opsmith::exact::Number<a> called(const opsmith::exact::Number<a>& x) { \
    return opsmith::exact::Number<a>(opsmith::exact::functions::name(x));       \
  }
// Of integers, sqrtf is not rounded either: a kernel's own number of single precision is exact.
#define OPSMITH_EXACT_ONE(name)    \
  template <std::integral N>       \
  inline double name##f(N x) {     \
    return name(x);                \
  }                                \
  OPSMITH_EXACT_ONE_AS(name, name) \
  OPSMITH_EXACT_ONE_AS(name, name##f)
OPSMITH_EXACT_FUNCTIONS(OPSMITH_EXACT_ONE)
#undef OPSMITH_EXACT_ONE
#undef OPSMITH_EXACT_ONE_AS

#define OPSMITH_EXACT_TWO_AS(name, called)                                                     \
  template <opsmith::exact::Kind a, opsmith::exact::Kind b>                                    \
  inline auto called(const opsmith::exact::Number<a>& x, const opsmith::exact::Number<b>& y) { \
    return opsmith::exact::Number<opsmith::exact::wider(a, b)>(                                \
        opsmith::exact::functions::name(x, y));                                                \
  }                                                                                            \
  template <opsmith::exact::Kind a, opsmith::exact::native N>                                  \
  inline auto called(const opsmith::exact::Number<a>& x, N y) {                                \
    constexpr auto kind = opsmith::exact::kind_of<N>(a);                                       \
    return called(opsmith::exact::Number<kind>(x), opsmith::exact::Number<kind>(y));           \
  }                                                                                            \
  template <opsmith::exact::native N, opsmith::exact::Kind b>                                  \
  inline auto called(N x, const opsmith::exact::Number<b>& y) {                                \
    constexpr auto kind = opsmith::exact::kind_of<N>(b);                                       \
    return called(opsmith::exact::Number<kind>(x), opsmith::exact::Number<kind>(y));           \
  }
#define OPSMITH_EXACT_TWO(name)                                  \
  template <std::integral N, opsmith::exact::native M>           \
  inline double name##f(N x, M y) {                              \
    return name(static_cast<double>(x), static_cast<double>(y)); \
  }                                                              \
  OPSMITH_EXACT_TWO_AS(name, name)                               \
  OPSMITH_EXACT_TWO_AS(name, name##f)
OPSMITH_EXACT_FUNCTIONS_OF_TWO(OPSMITH_EXACT_TWO)
#undef OPSMITH_EXACT_TWO
#undef OPSMITH_EXACT_TWO_AS

template <opsmith::exact::Kind a>
inline opsmith::exact::Number<a> abs(const opsmith::exact::Number<a>& x) {
  return opsmith::exact::Number<a>(opsmith::exact::absolute(x));
}
template <opsmith::exact::Kind a>
constexpr bool isnan(const opsmith::exact::Number<a>& x) {
  return std::isnan(x.near());
}
template <opsmith::exact::Kind a>
inline bool isinf(const opsmith::exact::Number<a>& x) {
  return std::isinf(x.near());
}
template <opsmith::exact::Kind a>
inline bool isfinite(const opsmith::exact::Number<a>& x) {
  return std::isfinite(x.near());
}
template <opsmith::exact::Kind a>
inline bool signbit(const opsmith::exact::Number<a>& x) {
  return std::signbit(x.near());
}
template <opsmith::exact::Kind a>
inline long lround(const opsmith::exact::Number<a>& x) {
  return std::lround(opsmith::exact::functions::round(x).value);
}
template <opsmith::exact::Kind a>
inline long lrint(const opsmith::exact::Number<a>& x) {
  return std::lrint(opsmith::exact::functions::rint(x).value);
}
template <opsmith::exact::Kind a, typename B, typename C>
inline auto fma(const opsmith::exact::Number<a>& x, const B& y, const C& z) {
  return x * y + z;
}
template <opsmith::exact::Kind a, typename B, typename C>
inline auto fmaf(const opsmith::exact::Number<a>& x, const B& y, const C& z) {
  return x * y + z;
}

// A literal keeps its own type, so that std::max(x, 0.0f) has two.
#define OPSMITH_EXACT_EXTREME(name)                                                          \
  template <opsmith::exact::Kind a, opsmith::exact::native N>                                \
  constexpr opsmith::exact::Number<a> name(const opsmith::exact::Number<a>& x, const N& y) { \
    return std::name(x, opsmith::exact::Number<a>(y));                                       \
  }                                                                                          \
  template <opsmith::exact::native N, opsmith::exact::Kind a>                                \
  constexpr opsmith::exact::Number<a> name(const N& x, const opsmith::exact::Number<a>& y) { \
    return std::name(opsmith::exact::Number<a>(x), y);                                       \
  }
OPSMITH_EXACT_EXTREME(max)
OPSMITH_EXACT_EXTREME(min)
#undef OPSMITH_EXACT_EXTREME
template <opsmith::exact::Kind a, opsmith::exact::native N, opsmith::exact::native M>
constexpr opsmith::exact::Number<a> clamp(const opsmith::exact::Number<a>& x, const N& low,
                                          const M& high) {
  return std::min(std::max(x, low), high);
}
template <typename It, opsmith::exact::native N>
  requires opsmith::exact::number<typename iterator_traits<It>::value_type> && (!is_integral_v<N>)
inline auto accumulate(It first, It last, N start) {
  typename iterator_traits<It>::value_type sum(start);
  for (; first != last; ++first) sum += *first;
  return sum;
}
template <typename It, typename Other, opsmith::exact::native N>
  requires opsmith::exact::number<typename iterator_traits<It>::value_type> && (!is_integral_v<N>)
inline auto inner_product(It first, It last, Other other, N start) {
  typename iterator_traits<It>::value_type sum(start);
  for (; first != last; ++first, ++other) sum += *first * *other;
  return sum;
}

template <>
struct is_floating_point<opsmith::exact::Float> : true_type {};
template <>
struct is_floating_point<opsmith::exact::Double> : true_type {};

// The limits of the type that a number stands for.
template <opsmith::exact::Kind kind>
class numeric_limits<opsmith::exact::Number<kind>> {
  using Number = opsmith::exact::Number<kind>;
  static constexpr bool twofold = kind == opsmith::exact::Kind::twofold;
  static constexpr Number of(double d, double s, double b, double h) {
    // In coarse types as literals of single precision: a reference in double precision has the
    // limits of another type.
    return twofold                                  ? Number(d)
           : kind == opsmith::exact::Kind::single   ? Number(static_cast<float>(s))
           : kind == opsmith::exact::Kind::bfloat16 ? Number(static_cast<float>(b))
                                                    : Number(static_cast<float>(h));
  }

 public:
  static constexpr bool is_specialized = true, is_signed = true, is_integer = false,
                        is_exact = false, has_infinity = true, has_quiet_NaN = true,
                        is_iec559 = true;
  static constexpr int digits = twofold ? 53 : kind == opsmith::exact::Kind::single ? 24 : 11;
  static constexpr Number infinity() { return Number(HUGE_VAL); }
  static constexpr Number quiet_NaN() { return Number(numeric_limits<double>::quiet_NaN()); }
  static constexpr Number max() {
    return of(numeric_limits<double>::max(), 0x1.fffffep127, 0x1.fep127, 65504);
  }
  static constexpr Number lowest() { return -max(); }
  static constexpr Number min() {
    return of(numeric_limits<double>::min(), 0x1p-126, 0x1p-126, 0x1p-14);
  }
  static constexpr Number epsilon() { return of(0x1p-52, 0x1p-23, 0x1p-7, 0x1p-10); }
};

}  // namespace std

// The functions of <math.h>, without a namespace.
#define OPSMITH_EXACT_GLOBAL(name) \
  using std::name;                 \
  using std::name##f;
OPSMITH_EXACT_FUNCTIONS(OPSMITH_EXACT_GLOBAL)
OPSMITH_EXACT_FUNCTIONS_OF_TWO(OPSMITH_EXACT_GLOBAL)
#undef OPSMITH_EXACT_GLOBAL
using std::abs;
using std::fma;
using std::fmaf;
using std::isfinite;
using std::isinf;
using std::isnan;
