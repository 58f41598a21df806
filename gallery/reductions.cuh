// What CUDA kernels share: sums over the threads of a block, and over the rows of a matrix, in an
// order that the sizes alone decide.
#pragma once

#include <opsmith/cuda.h>

#include <algorithm>
#include <cstdint>

#include "packs.cuh"

namespace gallery {

inline constexpr int kBlock = 256;  // threads, at most

// As many threads as a row of `items` keeps busy, whole warps.
inline unsigned threads_for(int64_t items) {
  return static_cast<unsigned>(std::clamp<int64_t>((items + 31) / 32 * 32, 32, kBlock));
}

// What all threads of a block of whole warps have together; each of them gets it.
template <typename S>
__device__ S block_sum(S own) {
  __shared__ S sums[kBlock / 32];
  for (int step = 16; step > 0; step /= 2) own += __shfl_xor_sync(0xffffffffu, own, step);
  __syncthreads();  // the sums of the call before are read
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = own;
  __syncthreads();
  S sum = sums[0];
  for (int warp = 1; warp < static_cast<int>(blockDim.x / 32); ++warp) sum += sums[warp];
  return sum;
}

namespace detail {

// A thread takes one column of the rows of one part.
template <typename S, typename F>
__global__ void add_part(F term, int64_t rows, int64_t columns, int64_t each, S* parts) {
  const int64_t c = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (c >= columns) return;
  const int64_t first = blockIdx.y * each;
  const int64_t last = first + each < rows ? first + each : rows;
  S sum = 0;
  for (int64_t row = first; row < last; ++row) sum += term(row, c);
  parts[blockIdx.y * columns + c] = sum;
}

template <typename S, typename T>
__global__ void add_parts(const S* parts, int64_t count, int64_t columns, T* out) {
  const int64_t c = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (c >= columns) return;
  S sum = 0;
  for (int64_t part = 0; part < count; ++part) sum += parts[part * columns + c];
  out[c] = static_cast<T>(sum);
}

}  // namespace detail

// out[c] = the sum over all rows of term(row, c), which is `__device__`. Parts of the rows are
// added up side by side, and their sums one after the other.
template <typename S, typename F, typename T>
void sum_rows(const opsmith::Context& ctx, F term, int64_t rows, int64_t columns, T* out) {
  if (columns == 0) return;
  const int64_t each = std::max<int64_t>(64, (rows + 255) / 256);
  const int64_t count = (rows + each - 1) / each;
  const unsigned threads = threads_for(columns), blocks = opsmith::blocks_for(columns, threads);
  S* parts = ctx.scratch<S>(count * columns).data();
  if (count > 0) {
    opsmith::launch(ctx, detail::add_part<S, F>, dim3(blocks, static_cast<unsigned>(count)),
                    threads, 0, term, rows, columns, each, parts);
  }
  opsmith::launch(ctx, detail::add_parts<S, T>, blocks, threads, 0, parts, count, columns, out);
}

}  // namespace gallery
