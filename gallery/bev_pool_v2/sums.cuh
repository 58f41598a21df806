// The sums over the points of each cell and of each pixel, and how often each point counts.
#pragma once

#include <opsmith/cuda.h>

#include <cstdint>

#include "../packs.cuh"
#include "../segments.cuh"

namespace bev {

using gallery::are_aligned, gallery::kPack, gallery::kThreads, gallery::Pack, gallery::Segments,
    gallery::Sum;

inline Segments segments(const opsmith::Context& ctx, const int32_t* rows, int64_t points,
                         int64_t count) {
  return gallery::Segmenter(ctx, points, count)(rows, points);
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
