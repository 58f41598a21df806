#include "trebled.h"
#include <opsmith/kernel.h>

template <typename T>
void trebled(const opsmith::Context& ctx, const failing::trebled_args<T>& a) {
  ctx.parallel_for(0, a.N, 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) a.out[n] = 3 * a.x[n];
  });
}
OPSMITH_KERNEL(failing, trebled, cpu, float, double)
