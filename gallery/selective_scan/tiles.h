// Steps by channels on the CPU: neighbouring channels of one group lie in the lanes of a register,
// and a tile has some steps of these.
#pragma once

#include <opsmith/kernel.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "../vectors.h"

namespace scan {

using gallery::kLanes, gallery::Lanes, gallery::Sum;

inline constexpr int64_t kSteps = 64;  // of a tile

// Channels first … first + count - 1 of one group of one sequence.
struct Block {
  int64_t batch, group, first, count;
};

template <typename T>
struct alignas(64) Tile {
  Sum<T> items[kSteps * kLanes<T>];

  Lanes<T> operator[](int64_t step) const { return Lanes<T>::load(items + step * kLanes<T>); }
  void set(int64_t step, Lanes<T> lanes) { lanes.store(items + step * kLanes<T>); }

  // Reads `count` <= kSteps steps of each channel, from rows of `length` elements. Lanes without a
  // channel are zero.
  void read(const T* from, const Block& block, int64_t length, int64_t count) {
    Sum<T> row[kSteps] = {};
    for (int64_t lane = 0; lane < kLanes<T>; ++lane) {
      if (lane < block.count) {
        gallery::widen(from + lane * length, count, row);
      } else {
        std::fill_n(row, count, Sum<T>(0));
      }
      for (int64_t t = 0; t < count; ++t) items[t * kLanes<T> + lane] = row[t];
    }
  }

  // Writes them, rounded once.
  void write(T* to, const Block& block, int64_t length, int64_t count) const {
    Sum<T> row[kSteps];
    for (int64_t lane = 0; lane < block.count; ++lane) {
      for (int64_t t = 0; t < count; ++t) row[t] = items[t * kLanes<T> + lane];
      gallery::narrow(row, count, to + lane * length);
    }
  }
};

// What each channel of a block has once, in the lanes; 0 where nothing is there.
template <typename T>
Lanes<T> read_lanes(const Sum<T>* from, int64_t stride, int64_t count) {
  Sum<T> items[kLanes<T>] = {};
  if (from != nullptr) {
    for (int64_t lane = 0; lane < count; ++lane) items[lane] = from[lane * stride];
  }
  return Lanes<T>::load(items);
}
template <typename T>
void write_lanes(Lanes<T> lanes, Sum<T>* to, int64_t stride, int64_t count) {
  for (int64_t lane = 0; lane < count; ++lane) to[lane * stride] = lanes[static_cast<int>(lane)];
}

// Beyond it the softplus of a number is the number, and its slope 1, in double too.
inline constexpr int kThreshold = 40;

// log(1 + exp(x)), without a branch for float, so that compilers vectorise the loop around it.
template <typename S>
inline S softplus_of(S x) {
  const S e = gallery::exp_of(x < S(0) ? x : -x);  // 0 … 1
#ifdef OPSMITH_EXACT
  const S log = opsmith::log(1 + e);
#else
  S log;
  if constexpr (std::is_same_v<S, float>) {
    // log(1 + e) = 2 artanh(e / (2 + e)), whose series ends below float's precision: s is at most
    // 1/3.
    const float s = e / (2 + e), square = s * s;
    float p = 1.0f / 15;
    p = p * square + 1.0f / 13;
    p = p * square + 1.0f / 11;
    p = p * square + 1.0f / 9;
    p = p * square + 1.0f / 7;
    p = p * square + 1.0f / 5;
    p = p * square + 1.0f / 3;
    log = 2 * s + 2 * s * square * p;
  } else {
    log = std::log1p(e);
  }
#endif
  const S sum = (x < S(0) ? S(0) : x) + log;
  return x > S(kThreshold) ? x : sum;
}

// The slope of it.
template <typename S>
inline S softplus_slope_of(S x) {
  const S e = gallery::exp_of(x > S(kThreshold) ? S(kThreshold) : x);
  return x > S(kThreshold) ? S(1) : e / (1 + e);
}

// rates[t] = exp(steps[t] * rate).
template <typename T>
void find_rates(const Tile<T>& steps, Lanes<T> rate, int64_t count, Tile<T>& rates) {
  for (int64_t t = 0; t < count; ++t) rates.set(t, steps[t] * rate);
  for (int64_t i = 0; i < count * kLanes<T>; ++i) rates.items[i] = gallery::exp_of(rates.items[i]);
}

}  // namespace scan
