// What the two kernels of this folder share: how rows are added up. Each sum is taken by one
// thread, in the order of the points: results do not depend on the number of threads, nothing is
// atomic.
#pragma once

#include <opsmith/kernel.h>

#include <algorithm>
#include <cstdint>
#include <span>

#include "../vectors.h"

namespace bev {

// Half types are added up in float, beside the output.
using gallery::kInPlace, gallery::kLanes, gallery::Lanes, gallery::load, gallery::Sum;

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
