// What kernels on the CPU share: rows of any dtype as floats, sums that fill registers, and an
// exponential function that compilers vectorise.
#pragma once

#include <opsmith/kernel.h>
#include <opsmith/vec.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace gallery {

// What an element is computed in: half types in float.
template <typename T>
using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;
template <typename T>
inline constexpr bool kInPlace = std::is_same_v<T, Sum<T>>;

// Neighbouring elements in one register. A vector type and not an array: of an array, GCC's
// unroll-and-jam makes a loop that keeps the sums in memory, five times slower.
template <typename T>
using Lanes = opsmith::Vec<Sum<T>, opsmith::lanes<Sum<T>>>;
template <typename T>
inline constexpr int kLanes = Lanes<T>::lanes;

// Elements that a kernel keeps as floats at a time.
inline constexpr int64_t kTile = 512;
template <typename S>
struct alignas(64) Tile {
  S items[kTile];

  S& operator[](int64_t i) { return items[i]; }
  S operator[](int64_t i) const { return items[i]; }
};

namespace detail {

typedef uint32_t Bits __attribute__((vector_size(opsmith::vector_bytes)));
typedef uint16_t Halves __attribute__((vector_size(opsmith::vector_bytes / 2)));

template <typename To, typename From>
inline To same_bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(static_cast<void*>(&to), static_cast<const void*>(&from), sizeof to);
  return to;
}

}  // namespace detail

// Reads kLanes<T> elements.
template <typename T>
inline Lanes<T> load(const T* from) {
  if constexpr (kInPlace<T>) {
    return Lanes<T>::load(from);
  } else {
    // The compiler converts neither half type by vectors from their classes.
    using detail::Bits, detail::same_bits;
    detail::Halves halves;
    std::memcpy(&halves, from, sizeof halves);
    const Bits bits = __builtin_convertvector(halves, Bits);
    if constexpr (std::is_same_v<T, opsmith::bfloat16>) {
      return same_bits<Lanes<T>>(bits << 16);
    } else {
      // Exponent and mantissa move to their places; the product makes up for the other bias, also
      // for subnormal numbers. Infinity and NaN need the full exponent.
      const auto scaled = same_bits<Lanes<T>>((bits & 0x7fff) << 13) * 0x1p112f;
      const Bits special = reinterpret_cast<Bits>((bits & 0x7c00) == 0x7c00) & 0x7f800000;
      return same_bits<Lanes<T>>(same_bits<Bits>(scaled) | special | ((bits & 0x8000) << 16));
    }
  }
}

// Writes kLanes<T> elements, rounded to the nearest, ties to even.
template <typename T>
inline void store(Lanes<T> lanes, T* to) {
  if constexpr (kInPlace<T>) {
    lanes.store(to);
  } else {
    using detail::Bits, detail::same_bits;
    const auto bits = same_bits<Bits>(lanes);
    const Bits magnitude = bits & 0x7fffffff;
    const auto is_nan = reinterpret_cast<Bits>(magnitude > 0x7f800000);
    Bits rounded;
    if constexpr (std::is_same_v<T, opsmith::bfloat16>) {
      rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
      rounded = (rounded & ~is_nan) | (0x7fc0 & is_nan);
    } else {
      // The sum with a power of two, chosen by the exponent, rounds where a half number ends. The
      // products make infinity of what is beyond its range.
      const auto scaled = same_bits<Lanes<T>>(magnitude) * 0x1p112f * 0x1p-110f;
      Bits bias = (bits + bits) & 0xff000000;
      const auto is_small = reinterpret_cast<Bits>(bias < 0x71000000);
      bias = (bias & ~is_small) | (0x71000000 & is_small);
      const auto sum = same_bits<Bits>(same_bits<Lanes<T>>((bias >> 1) + 0x07800000) + scaled);
      rounded = ((sum >> 13) & 0x7c00) + (sum & 0xfff);
      rounded = ((rounded & ~is_nan) | (0x7e00 & is_nan)) | ((bits >> 16) & 0x8000);
    }
    const auto halves = __builtin_convertvector(rounded, detail::Halves);
    std::memcpy(static_cast<void*>(to), &halves, sizeof halves);
  }
}

// to[0..count) = from[0..count), as floats.
template <typename T>
inline void widen(const T* from, int64_t count, Sum<T>* to) {
  int64_t c = 0;
  for (; c + kLanes<T> <= count; c += kLanes<T>) load(from + c).store(to + c);
  for (; c < count; ++c) to[c] = static_cast<Sum<T>>(from[c]);
}

// to[0..count) = from[0..count), rounded once.
template <typename T>
inline void narrow(const Sum<T>* from, int64_t count, T* to) {
  int64_t c = 0;
  for (; c + kLanes<T> <= count; c += kLanes<T>) store<T>(Lanes<T>::load(from + c), to + c);
  for (; c < count; ++c) to[c] = static_cast<T>(from[c]);
}

// Reads as many elements as a register of W takes: W is Sum<T>, or double for float.
template <typename W, typename T>
inline opsmith::Vec<W, opsmith::lanes<W>> load_as(const T* from) {
  using Wide = opsmith::Vec<W, opsmith::lanes<W>>;
  if constexpr (std::is_same_v<W, Sum<T>>) {
    return load(from);
  } else {
    W items[Wide::lanes];
    for (int i = 0; i < Wide::lanes; ++i) items[i] = static_cast<W>(from[i]);
    return Wide::load(items);
  }
}

template <typename T, typename W>
inline void store_as(opsmith::Vec<W, opsmith::lanes<W>> lanes, T* to) {
  if constexpr (std::is_same_v<W, Sum<T>>) {
    store<T>(lanes, to);
  } else {
    for (int i = 0; i < lanes.lanes; ++i) to[i] = static_cast<T>(lanes[i]);
  }
}

// to[c] = f(from[c]...) for c in [0, count), computed in W. `f` is called with vectors, and with
// single numbers for the rest.
template <typename W, typename T, typename F, typename... From>
inline void transform(int64_t count, T* to, F f, const From*... from) {
  int64_t c = 0;
  for (; c + opsmith::lanes<W> <= count; c += opsmith::lanes<W>) {
    store_as<T, W>(f(load_as<W>(from + c)...), to + c);
  }
  for (; c < count; ++c) to[c] = static_cast<T>(f(static_cast<W>(from[c])...));
}

// The sum of the products of factors[c]... for c in [0, count), in W, in an order that `count`
// alone decides.
template <typename W, typename... From>
inline W sum_of_products(int64_t count, const From*... factors) {
  using Wide = opsmith::Vec<W, opsmith::lanes<W>>;
  constexpr int kChains = 4;  // of additions, none of which waits for another
  Wide sums[kChains] = {};
  int64_t c = 0;
  for (; c + kChains * Wide::lanes <= count; c += kChains * Wide::lanes) {
    for (int k = 0; k < kChains; ++k) {
      sums[k] += (load_as<W>(factors + c + k * Wide::lanes) * ...);
    }
  }
  for (; c + Wide::lanes <= count; c += Wide::lanes) sums[0] += (load_as<W>(factors + c) * ...);
  W sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])).sum();
  for (; c < count; ++c) sum += (static_cast<W>(factors[c]) * ...);
  return sum;
}

// The exponential function without a branch or a call, so that compilers vectorise the loop around
// it; within 2 units in the last place. The others are those of the standard library.
template <typename S>
inline S exp_of(S x) {
#ifndef OPSMITH_EXACT  // there it is the function itself, of numbers without bits
  if constexpr (std::is_same_v<S, float>) {
    // x = n ln 2 + r, and e^x = 2^n e^r. Beyond the bounds it is 0 or infinity; NaN stays.
    x = x < -104.0f ? -104.0f : x;
    x = x > 89.0f ? 89.0f : x;
    constexpr float kRounding = 0x1.8p23f;
    const float rounded = x * 0x1.715476p0f + kRounding;
    const float n = rounded - kRounding;
    const float r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
    float p = 0x1.6a98dap-10f;
    p = p * r + 0x1.1239bcp-7f;
    p = p * r + 0x1.555778p-5f;
    p = p * r + 0x1.55548ep-3f;
    p = p * r + 0x1.fffff8p-2f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    // Two powers of two: one alone would be beyond the range of float for some n.
    const uint32_t power = std::bit_cast<uint32_t>(rounded) - std::bit_cast<uint32_t>(kRounding);
    const uint32_t half = ((power + 0x80000000u) >> 1) - 0x40000000u;
    return p * std::bit_cast<float>((half + 127u) << 23) *
           std::bit_cast<float>((power - half + 127u) << 23);
  }
#endif
  return opsmith::exp(x);
}

}  // namespace gallery
