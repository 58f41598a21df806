// See published_pool.cu. The intervals are runs of points of one pixel.
#include "published_pool_backward.h"

#include <opsmith/cuda.h>

#include <cstdint>

namespace {

constexpr int kThreads = 256;

__global__ void spread(int channels, int64_t items, const float* grad, const float* depth,
                       const float* feat, const int32_t* ranks_depth, const int32_t* ranks_feat,
                       const int32_t* ranks_bev, const int32_t* starts, const int32_t* lengths,
                       float* grad_depth, float* grad_feat) {
  const int64_t item = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (item >= items) return;
  const int64_t interval = item / channels;
  const int channel = static_cast<int>(item % channels);
  const int32_t start = starts[interval];
  const int64_t pixel = int64_t{ranks_feat[start]} * channels + channel;
  float sum = 0;
  for (int32_t i = start; i < start + lengths[interval]; ++i) {
    const float from = grad[int64_t{ranks_bev[i]} * channels + channel];
    sum += from * depth[ranks_depth[i]];
    atomicAdd(grad_depth + ranks_depth[i], from * feat[pixel]);
  }
  grad_feat[pixel] = sum;
}

}  // namespace

void published_pool_backward(const opsmith::Context& ctx,
                             const gpu::published_pool_backward_args& a) {
  const auto stream = opsmith::cuda_stream(ctx);
  for (const auto& out : {a.out0, a.out1}) {
    if (out.numel() == 0) continue;
    opsmith::check_cuda(ctx, cudaMemsetAsync(out.data(), 0, out.numel() * sizeof(float), stream),
                        "cudaMemsetAsync");
  }
  const int64_t items = a.I * a.C;
  if (items == 0) return;
  opsmith::launch(ctx, spread, opsmith::blocks_for(items, kThreads), kThreads, 0,
                  static_cast<int>(a.C), items, a.grad.data(), a.depth.data(), a.feat.data(),
                  a.ranks_depth.data(), a.ranks_feat.data(), a.ranks_bev.data(),
                  a.interval_starts.data(), a.interval_lengths.data(), a.out0.data(),
                  a.out1.data());
}
OPSMITH_KERNEL(gpu, published_pool_backward, cuda)
