#include <opsmith/kernel.h>

#include <stdexcept>

#include "pick.h"

void pick(const opsmith::Context& ctx, const sample::pick_args& a) {
  ctx.parallel_for(0, a.P, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      a.out[p] = a.x[a.rows[p]];
      if (a.out[p] < 0) throw std::domain_error("a negative element");
    }
  });
}
OPSMITH_KERNEL(sample, pick, cpu)
