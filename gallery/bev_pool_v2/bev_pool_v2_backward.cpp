#include "bev_pool_v2_backward.h"

#include <opsmith/kernel.h>

#include <cstdint>

#include "points.h"

// Every thread goes over all points and takes those of the rows it owns. Sorting the points by
// pixel would need an index as large as the points; two passes of comparing need no memory.
template <typename T>
void bev_pool_v2_backward(const opsmith::Context& ctx, const bev::bev_pool_v2_backward_args<T>& a) {
  using Sum = bev::Sum<T>;
  const T *grad = a.grad.data(), *feat = a.feat.data(), *depth = a.depth.data();
  const int32_t *ranks_depth = a.ranks_depth.data(), *ranks_feat = a.ranks_feat.data(),
                *ranks_bev = a.ranks_bev.data();
  const int64_t channels = a.C;

  const auto add_to_bins = [=, &a](int64_t first, int64_t last, Sum* sums) {
    bev::for_each_point(a, [=](int64_t p) {
      const int64_t bin = ranks_depth[p];
      if (bin < first || bin >= last) return;
      sums[bin - first] +=
          bev::dot(grad + ranks_bev[p] * channels, feat + ranks_feat[p] * channels, channels);
    });
  };
  bev::sum_rows(ctx, a.out0.data(), a.B * a.N * a.D * a.H * a.W, 1, add_to_bins);

  const auto add_to_pixels = [=, &a](int64_t first, int64_t last, Sum* sums) {
    bev::for_each_point(a, [=](int64_t p) {
      const int64_t pixel = ranks_feat[p];
      if (pixel < first || pixel >= last) return;
      bev::add_scaled(sums + (pixel - first) * channels, static_cast<Sum>(depth[ranks_depth[p]]),
                      grad + ranks_bev[p] * channels, channels);
    });
  };
  bev::sum_rows(ctx, a.out1.data(), a.B * a.N * a.H * a.W, a.C, add_to_pixels);
}
OPSMITH_KERNEL(bev, bev_pool_v2_backward, cpu, float, double, opsmith::half, opsmith::bfloat16)
