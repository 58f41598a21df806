// What the two kernels of this folder share: how rows are added up. Each sum is taken by one
// thread, in the order of the points: results do not depend on the number of threads, nothing is
// atomic.
#pragma once

#include <opsmith/kernel.h>
#include <opsmith/vec.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace bev {

// Half types are added up in float, beside the output.
template <typename T>
using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;
template <typename T>
inline constexpr bool kInPlace = std::is_same_v<T, Sum<T>>;

// Neighbouring channels in one register. A vector type and not an array: of an array, GCC's
// unroll-and-jam makes a loop that keeps the sums in memory, five times slower.
template <typename T>
using Lanes = opsmith::Vec<Sum<T>, opsmith::lanes<Sum<T>>>;
template <typename T>
inline constexpr int kLanes = Lanes<T>::lanes;

// Reads kLanes<T> elements.
template <typename T>
inline Lanes<T> load(const T* from) {
  if constexpr (kInPlace<T>) {
    return Lanes<T>::load(from);
  } else {
    // The compiler converts neither half type by vectors from their classes.
    typedef uint32_t Bits __attribute__((vector_size(opsmith::vector_bytes)));
    typedef uint16_t Halves __attribute__((vector_size(opsmith::vector_bytes / 2)));
    Lanes<T> lanes;
    Halves halves;
    std::memcpy(&halves, from, sizeof halves);
    Bits bits = __builtin_convertvector(halves, Bits);
    if constexpr (std::is_same_v<T, opsmith::bfloat16>) {
      bits <<= 16;
      std::memcpy(&lanes, &bits, sizeof lanes);
    } else {
      // Exponent and mantissa move to their places; the product makes up for the other bias, also
      // for subnormal numbers. Infinity and NaN need the full exponent.
      const Bits magnitude = (bits & 0x7fff) << 13;
      std::memcpy(&lanes, &magnitude, sizeof lanes);
      lanes *= 0x1p112f;
      Bits scaled;
      std::memcpy(&scaled, &lanes, sizeof scaled);
      const Bits special = reinterpret_cast<Bits>((bits & 0x7c00) == 0x7c00) & 0x7f800000;
      bits = scaled | special | ((bits & 0x8000) << 16);
      std::memcpy(&lanes, &bits, sizeof lanes);
    }
    return lanes;
  }
}

// sums[c] += scale * row[c] for c in [0, count).
template <typename T>
inline void add_scaled(Sum<T>* sums, Sum<T> scale, const T* row, int64_t count) {
  int64_t c = 0;
  for (; c + kLanes<T> <= count; c += kLanes<T>) {
    (Lanes<T>::load(sums + c) + scale * load(row + c)).store(sums + c);
  }
  for (; c < count; ++c) sums[c] += scale * static_cast<Sum<T>>(row[c]);
}

// The sum of left[c] * right[c] for c in [0, count).
template <typename T>
inline Sum<T> dot(const T* left, const T* right, int64_t count) {
  Lanes<T> lanes = {};
  int64_t c = 0;
  for (; c + kLanes<T> <= count; c += kLanes<T>) lanes += load(left + c) * load(right + c);
  Sum<T> sum = lanes.sum();
  for (; c < count; ++c) sum += static_cast<Sum<T>>(left[c]) * static_cast<Sum<T>>(right[c]);
  return sum;
}

// Calls f(p) for every point p that an interval holds, in order, as often as intervals hold it.
template <typename Args, typename F>
inline void for_each_point(const Args& a, F f) {
  const int32_t *starts = a.interval_starts.data(), *lengths = a.interval_lengths.data();
  const int64_t count = a.I;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t end = int64_t{starts[i]} + lengths[i];
    for (int64_t p = starts[i]; p < end; ++p) f(p);
  }
}

// Writes `rows` rows of `length` elements. Each thread owns some of them: add(first, last, sums)
// goes over all points and adds those that belong to the rows [first, last) to `sums`, which start
// at zero. Half types are added up beside the output, a bounded number of rows at a time.
template <typename T, typename F>
void sum_rows(const opsmith::Context& ctx, T* out, int64_t rows, int64_t length, F add) {
  if (rows * length == 0) return;
  constexpr int64_t kScratchBytes = 1 << 19;
  const int64_t parts = std::min<int64_t>(rows, ctx.num_threads());
  int64_t block = (rows + parts - 1) / parts;
  std::span<Sum<T>> scratch;
  if constexpr (!kInPlace<T>) {
    const int64_t fit = kScratchBytes / (parts * length * static_cast<int64_t>(sizeof(Sum<T>)));
    block = std::min(block, std::max<int64_t>(fit, 1));
    scratch = ctx.scratch<Sum<T>>(parts * block * length);
  }
  ctx.parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t part_end = rows * (part + 1) / parts;
      for (int64_t first = rows * part / parts; first < part_end; first += block) {
        const int64_t last = std::min(first + block, part_end);
        T* place = out + first * length;
        const int64_t count = (last - first) * length;
        if constexpr (kInPlace<T>) {
          std::fill_n(place, count, T(0));
          add(first, last, place);
        } else {
          Sum<T>* sums = scratch.data() + part * block * length;
          std::fill_n(sums, count, Sum<T>(0));
          add(first, last, sums);
          std::copy_n(sums, count, place);
        }
      }
    }
  });
}

}  // namespace bev
