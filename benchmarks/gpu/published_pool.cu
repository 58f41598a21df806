// The published algorithm of bev_pool_v2 as it stands: a thread for each interval and channel; in
// the backward, an atomic addition for each channel to the gradient of the depth.
#include "published_pool.h"

#include <opsmith/cuda.h>

#include <cstdint>

namespace {

constexpr int kThreads = 256;

__global__ void pool(int channels, int64_t items, const float* depth, const float* feat,
                     const int32_t* ranks_depth, const int32_t* ranks_feat,
                     const int32_t* ranks_bev, const int32_t* starts, const int32_t* lengths,
                     float* out) {
  const int64_t item = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (item >= items) return;
  const int64_t interval = item / channels;
  const int channel = static_cast<int>(item % channels);
  const int32_t start = starts[interval];
  float sum = 0;
  for (int32_t i = start; i < start + lengths[interval]; ++i) {
    sum += depth[ranks_depth[i]] * feat[int64_t{ranks_feat[i]} * channels + channel];
  }
  out[int64_t{ranks_bev[start]} * channels + channel] = sum;
}

}  // namespace

void published_pool(const opsmith::Context& ctx, const gpu::published_pool_args& a) {
  if (a.out.numel() == 0) return;
  opsmith::check_cuda(
      ctx,
      cudaMemsetAsync(a.out.data(), 0, a.out.numel() * sizeof(float), opsmith::cuda_stream(ctx)),
      "cudaMemsetAsync");
  const int64_t items = a.I * a.C;
  if (items == 0) return;
  opsmith::launch(ctx, pool, opsmith::blocks_for(items, kThreads), kThreads, 0,
                  static_cast<int>(a.C), items, a.depth.data(), a.feat.data(), a.ranks_depth.data(),
                  a.ranks_feat.data(), a.ranks_bev.data(), a.interval_starts.data(),
                  a.interval_lengths.data(), a.out.data());
}
OPSMITH_KERNEL(gpu, published_pool, cuda)
