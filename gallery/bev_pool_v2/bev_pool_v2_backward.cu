#include "bev_pool_v2_backward.h"

#include <opsmith/cuda.h>

#include <cstdint>

#include "sums.cuh"

namespace {

using bev::Pack, bev::Sum;

// The gradient of each point's weight, times how many intervals hold it: a warp for each point.
template <typename T, int kCount>
__global__ void multiply_points(const T* grad, const T* feat, const int32_t* ranks_bev,
                                const int32_t* ranks_feat, const int32_t* holders, int64_t points,
                                int64_t channels, Sum<T>* products) {
  using Elements = Pack<T, kCount>;
  const int64_t p = (blockIdx.x * int64_t{blockDim.x} + threadIdx.x) / 32;
  if (p >= points) return;  // all lanes of a warp, or none
  const auto* left = reinterpret_cast<const Elements*>(grad + ranks_bev[p] * channels);
  const auto* right = reinterpret_cast<const Elements*>(feat + ranks_feat[p] * channels);
  Sum<T> sum = 0;
  for (int64_t i = threadIdx.x % 32; i < channels / kCount; i += 32) {
    const Elements a = left[i], b = right[i];
    for (int k = 0; k < kCount; ++k) {
      sum += static_cast<Sum<T>>(a.items[k]) * static_cast<Sum<T>>(b.items[k]);
    }
  }
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  const int32_t times = holders[p];
  // Infinity times zero is not zero.
  if (threadIdx.x % 32 == 0) products[p] = times == 0 ? 0 : sum * static_cast<Sum<T>>(times);
}

template <typename T>
__global__ void sum_products(const Sum<T>* products, bev::Segments segments, int64_t rows, T* out) {
  const int64_t row = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (row >= rows) return;
  Sum<T> sum = 0;
  const int32_t end = segments.starts[row + 1];
  for (int32_t i = segments.starts[row]; i < end; ++i) sum += products[segments.point(i)];
  out[row] = static_cast<T>(sum);
}

}  // namespace

template <typename T>
void bev_pool_v2_backward(const opsmith::Context& ctx, const bev::bev_pool_v2_backward_args<T>& a) {
  const int64_t pixels = a.B * a.N * a.H * a.W, bins = pixels * a.D;
  const int32_t* holders = bev::holders(ctx, a);
  if (bins > 0) {
    const auto products = ctx.scratch<Sum<T>>(a.P);
    if (a.P > 0) {
      const bool whole = a.C % bev::kPack<T> == 0 && bev::are_aligned(a.grad.data(), a.feat.data());
      opsmith::launch(ctx, whole ? multiply_points<T, bev::kPack<T>> : multiply_points<T, 1>,
                      opsmith::blocks_for(a.P * 32, bev::kThreads), bev::kThreads, 0, a.grad.data(),
                      a.feat.data(), a.ranks_bev.data(), a.ranks_feat.data(), holders, a.P, a.C,
                      products.data());
    }
    opsmith::launch(ctx, sum_products<T>, opsmith::blocks_for(bins, bev::kThreads), bev::kThreads,
                    0, products.data(), bev::segments(ctx, a.ranks_depth.data(), a.P, bins), bins,
                    a.out0.data());
  }
  if (pixels * a.C > 0) {
    bev::launch_sum_scaled<T>(ctx, a, a.grad.data(), a.ranks_bev.data(), holders,
                              bev::segments(ctx, a.ranks_feat.data(), a.P, pixels), pixels,
                              a.out1.data());
  }
}
OPSMITH_KERNEL(bev, bev_pool_v2_backward, cuda, float, double, opsmith::half, opsmith::bfloat16)
