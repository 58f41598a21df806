// Softmax of rows: the warps' sums go to the slots that their maxima were in, where other warps may
// still read the row's maximum.
#include "row_softmax.h"

#include <opsmith/cuda.h>

#include <cmath>

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr unsigned kAll = 0xffffffffu;

__global__ void softmax(const float* x, float* out, int columns) {
  __shared__ float parts[kWarps];
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  x += static_cast<int64_t>(blockIdx.x) * columns;
  out += static_cast<int64_t>(blockIdx.x) * columns;

  float most = -INFINITY;
  for (int c = thread; c < columns; c += kThreads) most = fmaxf(most, x[c]);
  for (int by = 16; by > 0; by /= 2) most = fmaxf(most, __shfl_xor_sync(kAll, most, by));
  if (lane == 0) parts[warp] = most;
  __syncthreads();
  if (thread == 0) {
    for (int w = 1; w < kWarps; ++w) parts[0] = fmaxf(parts[0], parts[w]);
  }
  __syncthreads();
  most = parts[0];  // FAULT
#ifdef MENDED
  __syncthreads();
#endif

  float sum = 0;
  for (int c = thread; c < columns; c += kThreads) sum += expf(x[c] - most);
  for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(kAll, sum, by);
  if (lane == 0) parts[warp] = sum;  // FAULT
  __syncthreads();
  float total = 0;
  for (int w = 0; w < kWarps; ++w) total += parts[w];
  for (int c = thread; c < columns; c += kThreads) out[c] = expf(x[c] - most) / total;
}

void row_softmax(const opsmith::Context& ctx, const trophies::row_softmax_args& a) {
  if (a.N == 0 || a.C == 0) return;
  softmax<<<static_cast<unsigned>(a.N), kThreads, 0, opsmith::cuda_stream(ctx)>>>(
      a.x.data(), a.out.data(), static_cast<int>(a.C));
}
OPSMITH_KERNEL(trophies, row_softmax, cuda)
