// Arithmetic in two prime fields side by side: F_p for values, F_q for exponents, p = 2q + 1.
//
// x -> g^x with g of order q takes sums in F_q to products in F_p, so that exp and log keep their
// laws. docs/explanation/exact.md says what follows from that. The primes are those below 2^30 for
// which 2, 3, 5, 7, 11 and 13 are squares: the roots of numbers made of these have one sign.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace opsmith::exact {

// Why an unequal residue proves nothing. Equal residues prove as much as without.
enum Doubt : uint32_t {
  root = 1,         // a square root, whose sign the field does not know
  function = 2,     // a function that the field has no law for: equal arguments, equal results
  constant = 4,     // a constant that is no short decimal, fraction, or root of a fraction
  underflow = 8,    // an exponential that is 0 or infinite in double precision
  constant_f = 16,  // the same as `constant`, of a literal in single precision
};

struct Field {
  uint64_t p, q, g;

  static uint64_t multiply(uint64_t a, uint64_t b, uint64_t m) { return a * b % m; }
  static uint64_t power(uint64_t base, uint64_t exponent, uint64_t m) {
    uint64_t result = 1;
    for (base %= m; exponent > 0; exponent >>= 1, base = base * base % m) {
      if (exponent & 1) result = result * base % m;
    }
    return result;
  }
  static uint64_t inverse(uint64_t a, uint64_t m) {
    int64_t r = static_cast<int64_t>(m), next = static_cast<int64_t>(a % m), t = 0, step = 1;
    while (next != 0) {
      const int64_t times = r / next;
      const int64_t rest = r - times * next, other = t - times * step;
      r = next, next = rest, t = step, step = other;
    }
    return static_cast<uint64_t>(t < 0 ? t + static_cast<int64_t>(m) : t);
  }
  // A root of a square; of another number, of its negative. a -> root(a) keeps products.
  static uint64_t root(uint64_t a, uint64_t m) { return power(a, (m + 1) / 4, m); }
  static uint64_t mix(uint64_t a, uint64_t salt) {
    a += (salt + 1) * 0x9E3779B97F4A7C15u;
    a = (a ^ (a >> 30)) * 0xBF58476D1CE4E5B9u;
    a = (a ^ (a >> 27)) * 0x94D049BB133111EBu;
    return a ^ (a >> 31);
  }

  uint64_t exponential(uint64_t exponent) const { return power(g, exponent, p); }

  // The e with g^(2e) = a^2, so that log(ab) = log(a) + log(b) for all a and b; 0 for 0.
  // Shanks: "Class number, a theory of factorization, and genera", 1971.
  uint64_t logarithm(uint64_t a) const {
    if (a == 0) return 0;
    const Table& powers = table();
    const uint32_t* present = powers.present.data();
    uint64_t value = a * a % p;
    for (uint64_t e = 0; e <= q; e += steps, value = value * powers.back % p) {
      const uint64_t bit = value * hash >> (64 - log_bits);
      if ((present[bit / 32] >> bit % 32 & 1) == 0) [[likely]]
        continue;
      for (uint64_t at = bit / bits_of_slot; powers.slots[at].power != 0; at = (at + 1) % slots) {
        if (powers.slots[at].power != value) continue;
        return (e + powers.slots[at].exponent) % q * ((q + 1) / 2) % q;
      }
    }
    return 0;
  }

 private:
  static constexpr uint64_t hash = 0x9E3779B97F4A7C15u;
  static constexpr uint64_t log_bits = 21, steps = 1 << 17, slots = 2 * steps;
  static constexpr uint64_t bits_of_slot = (uint64_t{1} << log_bits) / slots;
  struct Slot {
    uint32_t power = 0, exponent = 0;
  };
  struct Table {
    std::vector<Slot> slots;        // g^0, g^1, …, by their values
    std::vector<uint32_t> present;  // a bit for each, since the bits fit into a processor's cache
    uint64_t back = 0;              // g^-steps
  };
  const Table& table() const {
    static std::mutex mutex;
    static std::unordered_map<uint64_t, Table> tables;  // by p
    const std::lock_guard<std::mutex> lock(mutex);
    Table& found = tables[p];
    if (!found.slots.empty()) return found;
    found.slots.resize(slots);
    found.present.resize((1 << log_bits) / 32);
    uint64_t value = 1;
    for (uint32_t e = 0; e < steps; ++e, value = value * g % p) {
      const uint64_t bit = value * hash >> (64 - log_bits);
      found.present[bit / 32] |= 1u << bit % 32;
      uint64_t at = bit / bits_of_slot;
      while (found.slots[at].power != 0) at = (at + 1) % slots;
      found.slots[at] = {static_cast<uint32_t>(value), e};
    }
    found.back = inverse(value, p);
    return found;
  }
};

inline constexpr uint64_t primes[] = {1073730719, 1073719919, 1073705519, 1073667839};

inline Field make_field(uint64_t p) {
  const uint64_t seed = 1234567891 + p % 1000;
  return {p, (p - 1) / 2, seed * seed % p};
}

// The field of this process, which the variable OPSMITH_EXACT names by its position. Only the
// program that computes references changes it, between its calls.
inline Field& field() {
  static Field chosen = [] {
    const char* asked = std::getenv("OPSMITH_EXACT");
    return make_field(primes[asked != nullptr && asked[0] != 0 ? (asked[0] - '0') & 3 : 0]);
  }();
  return chosen;
}

struct Residues {
  uint32_t p, q;
  uint32_t doubts_p, doubts_q;
};

inline Residues of_fraction(int64_t above, int64_t below) {
  const Field& f = field();
  const auto part = [&](uint64_t m) {
    const auto whole = [&](int64_t n) {
      const int64_t rest = n % static_cast<int64_t>(m);
      return static_cast<uint64_t>(rest < 0 ? rest + static_cast<int64_t>(m) : rest);
    };
    return static_cast<uint32_t>(whole(above) * Field::inverse(whole(below), m) % m);
  };
  return {part(f.p), part(f.q), 0, 0};
}

// The fraction with the smallest denominator within `error` of a value, relative to it.
inline bool as_fraction(double value, double error, int64_t most, int64_t& above, int64_t& below) {
  double rest = std::fabs(value);
  int64_t a = 1, b = 0, c = 0, d = 1;
  for (int step = 0; step < 40; ++step) {
    const double whole = std::floor(rest);
    if (whole > 1e9) return false;
    const auto n = static_cast<int64_t>(whole);
    const int64_t next = n * a + c, under = n * b + d;
    c = a, d = b, a = next, b = under;
    if (b > most || a > most || b * a > (most << 6)) return false;
    const double found = static_cast<double>(a) / static_cast<double>(b);
    if (std::fabs(found - std::fabs(value)) <= error * std::fabs(value)) {
      above = value < 0 ? -a : a;
      below = b;
      return true;
    }
    if (rest == whole) return false;
    rest = 1 / (rest - whole);
  }
  return false;
}

inline Residues negated(Residues r) {
  const Field& f = field();
  return {r.p ? static_cast<uint32_t>(f.p - r.p) : 0, r.q ? static_cast<uint32_t>(f.q - r.q) : 0,
          r.doubts_p, r.doubts_q};
}

inline bool is_smooth(int64_t n) {
  for (const int64_t prime : {2, 3, 5, 7, 11, 13}) {
    while (n % prime == 0) n /= prime;
  }
  return n == 1;
}

inline Residues root_of_fraction(int64_t above, int64_t below) {
  const Residues r = of_fraction(above, below);
  const Field& f = field();
  // Takes the positive root for the square one, where all prime factors are squares mod p.
  const uint32_t doubts = is_smooth(above) && is_smooth(below) ? 0u : uint32_t{root};
  return {static_cast<uint32_t>(Field::root(r.p, f.p)),
          static_cast<uint32_t>(Field::root(r.q, f.q)), doubts, root};
}

// The number that a constant of a program stands for, and the value of that number.
//
// A decimal of a few digits is the decimal, a fraction of small numbers the fraction, a root of
// such a fraction the root; pi and ln 2 times such fractions likewise. `single`: a literal of
// single precision, which stands for every number that is rounded to it.
inline Residues of_constant(double& value, bool single) {
  const Field& f = field();
  if (value == 0 || !std::isfinite(value)) return {0, 0, 0, 0};
  const double error = single ? 0x1p-25 : 0x1p-50;
  const uint32_t inexact = single ? uint32_t{constant_f} : uint32_t{constant};
  if (value == std::rint(value) && std::fabs(value) < 0x1p53) {
    return of_fraction(static_cast<int64_t>(value), 1);
  }
  // A decimal.
  const double size = std::fabs(value);
  const int exponent = static_cast<int>(std::floor(std::log10(size)));
  const int most = single ? 6 : 12;
  if (exponent > -60 && exponent < 60) {
    for (int digits = 1; digits <= most; ++digits) {
      const long double scale = std::pow(10.0L, digits - 1 - exponent);
      const long double whole = std::rint(size * scale);
      const bool fits = single ? static_cast<float>(whole / scale) == static_cast<float>(size)
                               : std::fabs(whole / scale - size) <= error * size;
      if (!fits) continue;
      const auto count = static_cast<int64_t>(whole);
      const Residues head = of_fraction(value < 0 ? -count : count, 1);
      const int shift = exponent - digits + 1;
      const auto part = [&](uint64_t n, uint64_t m) {
        const uint64_t ten = Field::power(10, static_cast<uint64_t>(std::abs(shift)), m);
        return static_cast<uint32_t>(n * (shift < 0 ? Field::inverse(ten, m) : ten) % m);
      };
      value = static_cast<double>(value < 0 ? -whole / scale : whole / scale);
      return {part(head.p, f.p), part(head.q, f.q), 0, 0};
    }
  }
  const int64_t largest = single ? 64 : 8192;
  int64_t above, below;
  if (as_fraction(value, error, largest, above, below)) {
    value = static_cast<double>(above) / static_cast<double>(below);
    return of_fraction(above, below);
  }
  if (as_fraction(value * value, 2 * error, largest, above, below)) {
    const Residues r = root_of_fraction(above, below);
    const bool negative = value < 0;
    value = std::sqrt(static_cast<double>(above) / static_cast<double>(below));
    if (negative) value = -value;
    return negative ? negated(r) : r;
  }
  // pi is the square of a square, so that sqrt(pi) has one sign.
  constexpr double pi = 3.14159265358979323846, ln2 = 0.69314718055994530942;
  const uint64_t w = Field::mix(31415, 1) % f.p, w2 = w * w % f.p;
  const auto by_pi = [&](double given, bool times, bool rooted) -> bool {
    return as_fraction(rooted ? (times ? given * given / pi : given * given * pi)
                              : (times ? given / pi : given * pi),
                       2 * error, largest, above, below);
  };
  for (const bool rooted : {false, true}) {
    for (const bool times : {true, false}) {
      if (!by_pi(value, times, rooted)) continue;
      Residues r = rooted ? root_of_fraction(above, below) : of_fraction(above, below);
      uint64_t factor = rooted ? w2 : w2 * w2 % f.p;
      if (!times) factor = Field::inverse(factor, f.p);
      r.p = static_cast<uint32_t>(r.p * factor % f.p);
      r.doubts_q |= constant;
      const double fraction = static_cast<double>(above) / static_cast<double>(below);
      const double exact = times ? fraction * pi : fraction / pi;
      const bool negative = rooted && value < 0;
      value = rooted ? std::sqrt(exact) : exact;
      if (negative) value = -value;
      return negative ? negated(r) : r;
    }
  }
  for (const bool times : {true, false}) {
    if (!as_fraction(times ? value / ln2 : value * ln2, 2 * error, largest, above, below)) continue;
    Residues r = of_fraction(above, below);
    uint64_t factor = f.logarithm(2);
    if (!times) factor = Field::inverse(factor, f.q);
    r.q = static_cast<uint32_t>(r.q * factor % f.q);
    r.p = static_cast<uint32_t>(Field::mix(r.p, times ? 692 : 693) % f.p);
    r.doubts_p |= constant;
    const double fraction = static_cast<double>(above) / static_cast<double>(below);
    value = times ? fraction * ln2 : fraction / ln2;
    return r;
  }
  // Any other: the bits.
  int power;
  const double head = std::frexp(value, &power);
  const Residues whole = of_fraction(static_cast<int64_t>(std::ldexp(head, 53)), 1);
  power -= 53;
  const auto part = [&](uint64_t n, uint64_t m) {
    const uint64_t two = Field::power(2, static_cast<uint64_t>(std::abs(power)), m);
    return static_cast<uint32_t>(n * (power < 0 ? Field::inverse(two, m) : two) % m);
  };
  return {part(whole.p, f.p), part(whole.q, f.q), inexact, inexact};
}

}  // namespace opsmith::exact
