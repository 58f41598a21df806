#include <opsmith/kernel.h>

#include "square.h"
#include "weighted_square.h"

template <typename T>
void weighted_square(const opsmith::Context& ctx, const sample::weighted_square_args<T>& a) {
  ctx.parallel_for(0, a.N, 64, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t c = 0; c < a.C; ++c) a.out(n, c) = a.weight[c] * square(a.x(n, c));
    }
  });
}
OPSMITH_KERNEL(sample, weighted_square, cpu, float, double)
