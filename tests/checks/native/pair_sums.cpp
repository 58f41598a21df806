#include "pair_sums.h"

#include <opsmith/kernel.h>

template <typename T>
void pair_sums(const opsmith::Context& ctx, const sound::pair_sums_args<T>& a) {
  ctx.parallel_for(0, (a.N + 1) / 2, 16, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      a.out[k] = 2 * k + 1 < a.N ? T(a.x[2 * k] + a.x[2 * k + 1]) : a.x[2 * k];
    }
  });
}
OPSMITH_KERNEL(sound, pair_sums, cpu, float, double, int32_t, int64_t, uint8_t)
