// Which points belong to each row: what the three sums of this folder need, without atomic
// operations on floating-point numbers, so that each sum is taken in the order of the points.
#pragma once

#include <opsmith/cuda.h>

#include <cstdint>
#include <type_traits>

namespace bev {

inline constexpr int kThreads = 256;

// Half types are added up in float.
template <typename T>
using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

// As many elements as one load takes.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T items[kCount];
};
template <typename T>
inline constexpr int kPack = 16 / sizeof(T);

template <typename... Pointers>
bool are_aligned(Pointers... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

// The points of row k are order[starts[k]] … order[starts[k + 1] - 1], in ascending order. Where
// the rows of the points only grow, as those of cells usually do, `order` is left out: point i is
// i.
struct Segments {
  const int32_t* starts;    // rows + 1
  const int32_t* order;     // points
  const int32_t* unsorted;  // one number, 0 or 1

  __device__ int32_t point(int32_t i) const { return *unsorted != 0 ? order[i] : i; }
};

static __global__ void find_order(const int32_t* rows, int64_t points, int32_t* unsorted) {
  const int64_t p = blockIdx.x * int64_t{blockDim.x} + threadIdx.x + 1;
  if (p < points && rows[p] < rows[p - 1]) atomicOr(unsorted, 1);
}

static __global__ void count_points(const int32_t* rows, int64_t points, const int32_t* unsorted,
                                    int32_t* counts) {
  const int64_t p = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (p < points && *unsorted != 0) atomicAdd(counts + rows[p], 1);
}

// Of sorted points, by binary search.
static __global__ void search_starts(const int32_t* rows, int64_t points, int64_t count,
                                     const int32_t* unsorted, int32_t* starts) {
  const int64_t row = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (row > count || *unsorted != 0) return;
  int64_t low = 0, high = points;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (rows[middle] < row) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  starts[row] = static_cast<int32_t>(low);
}

// Of other points, by adding up how many each row has: one block. Clears the counts.
static __global__ void add_up_counts(int64_t count, const int32_t* unsorted, int32_t* counts,
                                     int32_t* starts) {
  __shared__ int32_t sums[kThreads / 32];
  if (*unsorted == 0) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int32_t before = 0;
  for (int64_t first = 0; first < count; first += kThreads) {
    const int64_t row = first + threadIdx.x;
    const int32_t own = row < count ? counts[row] : 0;
    int32_t sum = own;
    for (int step = 1; step < 32; step *= 2) {
      const int32_t left = __shfl_up_sync(0xffffffffu, sum, step);
      if (lane >= step) sum += left;
    }
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    int32_t total = 0, left = 0;
    for (int w = 0; w < kThreads / 32; ++w) {
      if (w < warp) left += sums[w];
      total += sums[w];
    }
    __syncthreads();
    if (row < count) {
      starts[row] = before + left + sum - own;
      counts[row] = 0;
    }
    before += total;
  }
  if (threadIdx.x == 0) starts[count] = before;
}

static __global__ void place_points(const int32_t* rows, int64_t points, const int32_t* unsorted,
                                    const int32_t* starts, int32_t* counts, int32_t* order) {
  const int64_t p = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (p >= points || *unsorted == 0) return;
  const int32_t row = rows[p];
  order[starts[row] + atomicAdd(counts + row, 1)] = static_cast<int32_t>(p);
}

// Puts the points of each row in ascending order, which placing them did not: a warp for each row
// counts how many of its points come before each.
static __global__ void sort_points(int64_t count, const int32_t* unsorted, const int32_t* starts,
                                   const int32_t* placed, int32_t* order) {
  const int64_t row = (blockIdx.x * int64_t{blockDim.x} + threadIdx.x) / 32;
  if (row >= count || *unsorted == 0) return;
  const int32_t begin = starts[row], end = starts[row + 1];
  for (int32_t i = begin + static_cast<int32_t>(threadIdx.x % 32); i < end; i += 32) {
    const int32_t point = placed[i];
    int32_t smaller = 0;
    for (int32_t j = begin; j < end; ++j) smaller += placed[j] < point ? 1 : 0;
    order[begin + smaller] = point;
  }
}

// Finds the points of each of `count` rows, `rows` being those of the points.
inline Segments segments(const opsmith::Context& ctx, const int32_t* rows, int64_t points,
                         int64_t count) {
  const auto stream = opsmith::cuda_stream(ctx);
  const auto counts = ctx.scratch<int32_t>(count + 1);  // the last one is `unsorted`
  const auto starts = ctx.scratch<int32_t>(count + 1);
  const auto placed = ctx.scratch<int32_t>(points), order = ctx.scratch<int32_t>(points);
  int32_t* unsorted = counts.data() + count;
  opsmith::check_cuda(ctx, cudaMemsetAsync(counts.data(), 0, counts.size_bytes(), stream),
                      "cudaMemsetAsync");
  const unsigned by_point = opsmith::blocks_for(points, kThreads);
  if (points > 0) {
    opsmith::launch(ctx, find_order, by_point, kThreads, 0, rows, points, unsorted);
    opsmith::launch(ctx, count_points, by_point, kThreads, 0, rows, points, unsorted,
                    counts.data());
  }
  opsmith::launch(ctx, search_starts, opsmith::blocks_for(count + 1, kThreads), kThreads, 0, rows,
                  points, count, unsorted, starts.data());
  opsmith::launch(ctx, add_up_counts, 1, kThreads, 0, count, unsorted, counts.data(),
                  starts.data());
  if (points > 0) {
    opsmith::launch(ctx, place_points, by_point, kThreads, 0, rows, points, unsorted, starts.data(),
                    counts.data(), placed.data());
    opsmith::launch(ctx, sort_points, opsmith::blocks_for(count * 32, kThreads), kThreads, 0, count,
                    unsorted, starts.data(), placed.data(), order.data());
  }
  return {starts.data(), order.data(), unsorted};
}

static __global__ void count_holders(const int32_t* starts, const int32_t* lengths,
                                     int64_t intervals, int32_t* holders) {
  const int64_t i = (blockIdx.x * int64_t{blockDim.x} + threadIdx.x) / 32;
  if (i >= intervals) return;
  const int32_t start = starts[i], length = lengths[i];
  for (int32_t k = static_cast<int32_t>(threadIdx.x % 32); k < length; k += 32) {
    atomicAdd(holders + start + k, 1);
  }
}

// How many intervals hold each point.
template <typename Args>
const int32_t* holders(const opsmith::Context& ctx, const Args& a) {
  const auto counts = ctx.scratch<int32_t>(a.P);
  if (a.P == 0) return counts.data();
  opsmith::check_cuda(
      ctx, cudaMemsetAsync(counts.data(), 0, counts.size_bytes(), opsmith::cuda_stream(ctx)),
      "cudaMemsetAsync");
  if (a.I > 0) {
    opsmith::launch(ctx, count_holders, opsmith::blocks_for(a.I * 32, kThreads), kThreads, 0,
                    a.interval_starts.data(), a.interval_lengths.data(), a.I, counts.data());
  }
  return counts.data();
}

// Sums over the points of each row: out[row] = sum of depth[ranks_depth[p]] * from[ranks_from[p]],
// rows of `channels` elements. A thread takes kCount channels of one row.
template <typename T, int kCount>
__global__ void sum_scaled(const T* depth, const T* from, const int32_t* ranks_depth,
                           const int32_t* ranks_from, const int32_t* holders, Segments segments,
                           int64_t rows, int64_t channels, T* out) {
  using Elements = Pack<T, kCount>;
  const int64_t packs = channels / kCount;
  const int64_t item = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (item >= rows * packs) return;
  const int64_t row = item / packs, channel = item % packs * kCount;
  Sum<T> sums[kCount] = {};
  const int32_t end = segments.starts[row + 1];
  for (int32_t i = segments.starts[row]; i < end; ++i) {
    const int32_t p = segments.point(i);
    const int32_t times = holders[p];
    if (times == 0) continue;
    const Sum<T> scale = static_cast<Sum<T>>(depth[ranks_depth[p]]) * static_cast<Sum<T>>(times);
    const Elements elements =
        *reinterpret_cast<const Elements*>(from + ranks_from[p] * channels + channel);
    for (int k = 0; k < kCount; ++k) sums[k] += scale * static_cast<Sum<T>>(elements.items[k]);
  }
  Elements result;
  for (int k = 0; k < kCount; ++k) result.items[k] = static_cast<T>(sums[k]);
  *reinterpret_cast<Elements*>(out + row * channels + channel) = result;
}

template <typename T, typename Args>
void launch_sum_scaled(const opsmith::Context& ctx, const Args& a, const T* from,
                       const int32_t* ranks_from, const int32_t* holders, Segments segments,
                       int64_t rows, T* out) {
  if (rows * a.C == 0) return;
  // A view may begin anywhere, and rows may be of any length.
  const bool whole = a.C % kPack<T> == 0 && are_aligned(from, out);
  const int64_t items = rows * (whole ? a.C / kPack<T> : a.C);
  opsmith::launch(ctx, whole ? sum_scaled<T, kPack<T>> : sum_scaled<T, 1>,
                  opsmith::blocks_for(items, kThreads), kThreads, 0, a.depth.data(), from,
                  a.ranks_depth.data(), ranks_from, holders, segments, rows, a.C, out);
}

}  // namespace bev
