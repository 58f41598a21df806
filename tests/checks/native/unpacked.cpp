#include "unpacked.h"
#include <opsmith/kernel.h>

void unpacked(const opsmith::Context& ctx, const kinds::unpacked_args& a) {
  ctx.parallel_for(0, a.x.numel(), 1024, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      a.out[2 * i] = a.x[i] & 15;
      a.out[2 * i + 1] = a.x[i] >> 4;
    }
  });
}
OPSMITH_KERNEL(kinds, unpacked, cpu)
