#include <opsmith/kernel.h>

#include "masked.h"

// What is accessed depends on values.
void masked(const opsmith::Context& ctx, const narrow::masked_args& a) {
  ctx.parallel_for(0, a.N * a.C, 1024, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float x = a.x[i];
      if (x > 2.5f) {
        a.out[i] = 2 * a.x[i];
      } else {
        a.out[i] = x + x;
      }
    }
  });
}
OPSMITH_KERNEL(narrow, masked, cpu)
