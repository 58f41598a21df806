// The numbers that a kernel computes with in place of float, double and the half types: a value in
// double precision that decides comparisons, and residues in two fields, which are never rounded.
#pragma once

#include "field.h"

#include <cstring>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <unordered_map>

namespace opsmith::exact {

enum class Kind { half, bfloat16, single, twofold };

template <typename N>
concept native = std::is_integral_v<N> || std::is_same_v<N, float> || std::is_same_v<N, double> ||
                 std::is_same_v<N, long double>;

// The parts of a number of any kind.
struct Content {
  double value = 0;
  uint32_t p = 0, q = 0;
  uint32_t doubts_p = 0;
  uint32_t doubts_q = 0;

  static constexpr uint32_t written = 1u << 30;    // a constant of the source, without residues yet
  static constexpr uint32_t written_f = 1u << 29;  // the same, in single precision
};

// A number in memory. Of its doubts, each half keeps the gravest alone: a root is the least, then
// all others, then a constant of single precision. All bytes 0: the number 0. Its size is a power
// of two below 16, as kernels divide 16 by the size of an element.
class Packed {
 public:
  constexpr Packed() = default;
  // A constant of the source, whose residues are looked up where it is used.
  constexpr Packed(double constant, bool single)
      : value_(constant), rest_(constant == 0 ? 0 : written | uint64_t{single}) {}
  constexpr explicit Packed(const Content& a)
      : value_(a.value),
        rest_(a.doubts_p & (Content::written | Content::written_f)
                  ? written | uint64_t{(a.doubts_p & Content::written_f) != 0}
                  : a.p | uint64_t{a.q} << 30 | level(a.doubts_p) << 59 | level(a.doubts_q) << 61) {
  }
  constexpr operator Content() const {
    if (rest_ & written) {
      return {value_, 0, 0, rest_ & 1 ? Content::written_f : Content::written, 0};
    }
    return {value_, static_cast<uint32_t>(rest_ & ((1u << 30) - 1)),
            static_cast<uint32_t>(rest_ >> 30 & ((1u << 29) - 1)), doubts(rest_ >> 59 & 3),
            doubts(rest_ >> 61 & 3)};
  }
  // The value in double precision.
  constexpr double near() const { return value_; }
  constexpr const Packed& packed() const { return *this; }
  constexpr Packed opposite() const {
    Packed other = *this;
    other.value_ = -value_;
    return other;
  }
  constexpr bool is_written() const { return (rest_ & written) != 0; }
  constexpr bool is_constant() const { return is_written() || rest_ == 0; }

 private:
  static constexpr uint64_t written = uint64_t{1} << 63;

  static constexpr uint64_t level(uint32_t doubts) {
    return doubts & constant_f ? 3 : doubts & ~uint32_t{root} ? 2 : doubts ? 1 : 0;
  }
  static constexpr uint32_t doubts(uint64_t level) {
    return level == 3 ? uint32_t{constant_f} : level == 2 ? uint32_t{function} : level;
  }

  double value_ = 0;
  uint64_t rest_ = 0;  // p in 30 bits, q in 29, levels of doubts in 2 each
};

inline bool is_finite(const Content& a) { return std::isfinite(a.value); }

// A constant with its residues.
inline Content resolved(Content a) {
  if (!(a.doubts_p & (Content::written | Content::written_f))) [[likely]]
    return a;
  const bool single = (a.doubts_p & Content::written_f) != 0;
  thread_local std::unordered_map<uint64_t, Content> known;
  thread_local uint64_t of = 0;
  const Field& f = field();
  if (of != f.p) known.clear(), of = f.p;
  const uint64_t key = Field::mix(std::bit_cast<uint64_t>(a.value), single ? 1 : 0);
  const auto there = known.find(key);
  if (there != known.end()) return there->second;
  Content found;
  found.value = a.value;
  const Residues r = of_constant(found.value, single);
  found.p = r.p, found.q = r.q, found.doubts_p = r.doubts_p, found.doubts_q = r.doubts_q;
  known.emplace(key, found);
  return found;
}

inline Content number_of(double value) {
  Content a;
  a.value = value;
  a.doubts_p = Content::written;
  return resolved(a);
}

// The result of an operation: without residues where it is infinite or NaN, 0 where these say so.
inline Content settled(Content result, bool finite_before) {
  if (!std::isfinite(result.value)) {
    const uint32_t beyond = finite_before ? uint32_t{underflow} : 0;
    return {result.value, 0, 0, beyond, beyond};
  }
  if (!finite_before) return number_of(result.value);
  if (result.p == 0 && result.q == 0 && result.doubts_p == 0 && result.doubts_q == 0) {
    result.value = 0;
  }
  return result;
}

inline bool is_zero(const Content& a) { return a.p == 0 && a.q == 0 && is_finite(a); }

inline Content add(Content a, Content b) {
  a = resolved(a), b = resolved(b);
  const Field& f = field();
  const uint64_t p = uint64_t{a.p} + b.p, q = uint64_t{a.q} + b.q;
  return settled({a.value + b.value, static_cast<uint32_t>(p >= f.p ? p - f.p : p),
                  static_cast<uint32_t>(q >= f.q ? q - f.q : q), a.doubts_p | b.doubts_p,
                  a.doubts_q | b.doubts_q},
                 is_finite(a) && is_finite(b));
}

inline Content negative(Content a) {
  a = resolved(a);
  const Field& f = field();
  a.value = -a.value;
  a.p = a.p ? static_cast<uint32_t>(f.p - a.p) : 0;
  a.q = a.q ? static_cast<uint32_t>(f.q - a.q) : 0;
  return a;
}

inline Content subtract(Content a, Content b) { return add(a, negative(b)); }

inline Content multiply(Content a, Content b) {
  a = resolved(a), b = resolved(b);
  const Field& f = field();
  // A product with 0 leaves no doubt.
  if ((is_zero(a) && a.value == 0 && is_finite(b)) ||
      (is_zero(b) && b.value == 0 && is_finite(a))) {
    return {a.value * b.value, 0, 0, 0, 0};
  }
  return settled({a.value * b.value, static_cast<uint32_t>(uint64_t{a.p} * b.p % f.p),
                  static_cast<uint32_t>(uint64_t{a.q} * b.q % f.q), a.doubts_p | b.doubts_p,
                  a.doubts_q | b.doubts_q},
                 is_finite(a) && is_finite(b));
}

inline Content divide(Content a, Content b) {
  a = resolved(a), b = resolved(b);
  const Field& f = field();
  if (b.value == 0) {
    const double value = a.value / b.value;
    return {value, 0, 0, 0, 0};
  }
  return settled({a.value / b.value, static_cast<uint32_t>(a.p * Field::inverse(b.p, f.p) % f.p),
                  static_cast<uint32_t>(a.q * Field::inverse(b.q, f.q) % f.q),
                  a.doubts_p | b.doubts_p, a.doubts_q | b.doubts_q},
                 is_finite(a) && is_finite(b));
}

// -1, 0 or 1; 2 if one is NaN. Numbers with the same residues are equal, whatever was rounded.
inline int order(Content a, Content b) {
  a = resolved(a), b = resolved(b);
  if (std::isnan(a.value) || std::isnan(b.value)) return 2;
  if (is_finite(a) && is_finite(b) && a.p == b.p && a.q == b.q) return 0;
  return a.value < b.value ? -1 : a.value > b.value ? 1 : 0;
}

// floor, ceil, round, trunc: decided by the value, unless the residues say that it is an integer.
template <double (*way)(double)>
Content rounded(Content a) {
  a = resolved(a);
  if (!is_finite(a)) return a;
  const double nearest = std::rint(a.value);
  if (nearest != a.value && std::fabs(nearest - a.value) < 1e-6) {
    const Content whole = number_of(nearest);
    if (whole.p == a.p && whole.q == a.q) return whole;
  }
  return number_of(way(a.value));
}

inline Content absolute(Content a) { return resolved(a).value < 0 ? negative(a) : resolved(a); }

inline Content power_of(Content a, int64_t exponent) {
  Content result = number_of(1), base = exponent < 0 ? divide(number_of(1), a) : resolved(a);
  for (uint64_t e = static_cast<uint64_t>(exponent < 0 ? -exponent : exponent); e > 0; e >>= 1) {
    if (e & 1) result = multiply(result, base);
    base = multiply(base, base);
  }
  return result;
}

inline Content square_root(Content a) {
  a = resolved(a);
  const double value = std::sqrt(a.value);
  if (!std::isfinite(a.value) || std::isnan(value)) return {value, 0, 0, 0, 0};
  if (is_zero(a)) return a;
  // A constant's root has the sign that it has as a constant.
  double again = a.value;
  const Residues same = of_constant(again, false);
  if (same.p == a.p && same.q == a.q && a.doubts_p == 0) {
    int64_t above, below;
    if (as_fraction(again, 0x1p-50, 8192, above, below)) {
      const Residues r = root_of_fraction(above, below);
      return {value, r.p, r.q, r.doubts_p, r.doubts_q};
    }
  }
  const Field& f = field();
  return {value, static_cast<uint32_t>(Field::root(a.p, f.p)),
          static_cast<uint32_t>(Field::root(a.q, f.q)), a.doubts_p | root, a.doubts_q | root};
}

inline Content exponential(Content a) {
  a = resolved(a);
  const double value = std::exp(a.value);
  if (!is_finite(a)) return number_of(value);
  if (is_zero(a) && a.value == 0) return number_of(1);
  const Field& f = field();
  const uint32_t beyond = value == 0 || !std::isfinite(value) ? uint32_t{underflow} : 0;
  return {value, static_cast<uint32_t>(f.exponential(a.q)),
          static_cast<uint32_t>(Field::mix(a.q, 101) % f.q), a.doubts_q | beyond,
          a.doubts_q | function | beyond};
}

inline Content logarithm(Content a) {
  a = resolved(a);
  const double value = std::log(a.value);
  if (!is_finite(a) || !std::isfinite(value)) return {value, 0, 0, 0, 0};
  const Field& f = field();
  const Content one = number_of(1);
  if (a.p == one.p && a.q == one.q) return number_of(0);
  // exp(log(a)) is a or -a, as a is a square or not.
  const bool square = Field::power(a.p, f.q, f.p) == 1;
  return {value, static_cast<uint32_t>(Field::mix(a.p, 102) % f.p),
          static_cast<uint32_t>(f.logarithm(a.p)), a.doubts_p | function,
          a.doubts_p | (square ? 0 : uint32_t{root})};
}

// A function that the field has no law for, but that it is odd or even.
enum class Parity { odd, even, none };
template <Parity parity>
Content uninterpreted(Content a, double value, uint64_t name) {
  a = resolved(a);
  if (!is_finite(a)) return std::isfinite(value) ? number_of(value) : Content{value, 0, 0, 0, 0};
  if (is_zero(a) && parity == Parity::odd && value == 0) return number_of(0);
  const Field& f = field();
  const auto part = [name](uint32_t r, uint64_t m) {
    const bool upper = parity != Parity::none && r > m / 2;
    const uint64_t found = Field::mix(upper ? m - r : r, name) % m;
    return static_cast<uint32_t>(upper && parity == Parity::odd && found ? m - found : found);
  };
  return {value, part(a.p, f.p), part(a.q, f.q), a.doubts_p | function, a.doubts_q | function};
}

inline Content raised(Content a, Content b) {
  b = resolved(b);
  const double twice = 2 * b.value;
  if (b.doubts_p == 0 && twice == std::rint(twice) && std::fabs(twice) <= 128) {
    const Content same = number_of(b.value);
    if (same.p == b.p && same.q == b.q) {
      const auto whole = static_cast<int64_t>(twice);
      return whole % 2 == 0 ? power_of(a, whole / 2) : power_of(square_root(a), whole);
    }
  }
  Content result = exponential(multiply(b, logarithm(a)));
  result.value = std::pow(resolved(a).value, b.value);
  return result;
}

}  // namespace opsmith::exact
