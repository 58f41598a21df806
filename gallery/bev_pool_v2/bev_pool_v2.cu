#include "bev_pool_v2.h"

#include <opsmith/cuda.h>

#include <cstdint>

#include "sums.cuh"

template <typename T>
void bev_pool_v2(const opsmith::Context& ctx, const bev::bev_pool_v2_args<T>& a) {
  const int64_t cells = a.B * a.bev_size[0] * a.bev_size[1] * a.bev_size[2];
  if (a.out.numel() == 0) return;
  const auto segments = bev::segments(ctx, a.ranks_bev.data(), a.P, cells);
  bev::launch_sum_scaled<T>(ctx, a, a.feat.data(), a.ranks_feat.data(), bev::holders(ctx, a),
                            segments, cells, a.out.data());
}
OPSMITH_KERNEL(bev, bev_pool_v2, cuda, float, double, opsmith::half, opsmith::bfloat16)
