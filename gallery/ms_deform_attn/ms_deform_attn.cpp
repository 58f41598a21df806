// Multi-scale deformable attention: a query of an image is one piece of work, and each head of it a
// sum over levels and positions that stays in cache.
#include "ms_deform_attn.h"

#include <opsmith/kernel.h>

#include <cmath>
#include <cstdint>
#include <type_traits>

namespace {

// float16 and bfloat16 are computed in float32 from the first load to the last store.
template <typename T>
using compute_t = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename T, typename A>
inline void add(const T* __restrict pixel, A share, int64_t channels, A* __restrict sum) {
  for (int64_t d = 0; d < channels; ++d) sum[d] += share * static_cast<A>(pixel[d]);
}

// Adds `weight` times what lies at (y, x), in pixels, of one head's channels in one map. `map` is
// the head's first channel of the map's first pixel; pixels are `stride` elements apart.
template <typename T, typename A>
inline void sample(const T* map, int64_t stride, int64_t height, int64_t width, A y, A x, A weight,
                   int64_t channels, A* sum) {
  // False for a NaN also, so that nothing beyond is converted to an integer.
  const bool near =
      y > A(-1) && x > A(-1) && y < static_cast<A>(height) && x < static_cast<A>(width);
  if (!near) return;
  const A low_y = std::floor(y), low_x = std::floor(x);
  const A bottom = y - low_y, right = x - low_x;
  const auto row = static_cast<int64_t>(low_y), column = static_cast<int64_t>(low_x);
  for (int64_t down = 0; down < 2; ++down) {
    if (row + down < 0 || row + down >= height) continue;
    const A share_y = weight * (down ? bottom : A(1) - bottom);
    for (int64_t over = 0; over < 2; ++over) {
      if (column + over < 0 || column + over >= width) continue;
      const T* pixel = map + ((row + down) * width + column + over) * stride;
      add(pixel, share_y * (over ? right : A(1) - right), channels, sum);
    }
  }
}

}  // namespace

template <typename T>
void ms_deform_attn(const opsmith::Context& ctx, const vision::ms_deform_attn_args<T>& a) {
  using A = compute_t<T>;
  const int64_t stride = a.M * a.D;  // between pixels
  ctx.parallel_for(0, a.N * a.Lq, 1, [&](int64_t begin, int64_t end) {
    const auto sum = ctx.scratch<A>(a.D);
    for (int64_t query = begin; query < end; ++query) {
      const T* image = a.value.data() + query / a.Lq * a.S * stride;
      for (int64_t head = 0; head < a.M; ++head) {
        std::fill(sum.begin(), sum.end(), A(0));
        const int64_t first = (query * a.M + head) * a.L * a.P;
        for (int64_t level = 0; level < a.L; ++level) {
          const int64_t height = a.value_spatial_shapes[2 * level];
          const int64_t width = a.value_spatial_shapes[2 * level + 1];
          const T* map = image + a.level_start_index[level] * stride + head * a.D;
          for (int64_t i = first + level * a.P; i < first + (level + 1) * a.P; ++i) {
            const A x = static_cast<A>(a.sampling_locations[2 * i]) * static_cast<A>(width);
            const A y = static_cast<A>(a.sampling_locations[2 * i + 1]) * static_cast<A>(height);
            sample(map, stride, height, width, y - A(0.5), x - A(0.5),
                   static_cast<A>(a.attention_weights[i]), a.D, sum.data());
          }
        }
        T* out = a.out.data() + (query * a.M + head) * a.D;
        for (int64_t d = 0; d < a.D; ++d) out[d] = static_cast<T>(sum[d]);
      }
    }
  });
}
OPSMITH_KERNEL(vision, ms_deform_attn, cpu, float, double, opsmith::half, opsmith::bfloat16)
