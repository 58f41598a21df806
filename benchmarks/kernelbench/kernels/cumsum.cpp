#include "cumsum.h"

#include <opsmith/kernel.h>

void cumsum(const opsmith::Context& ctx, const kernelbench::cumsum_args& args) {
  ctx.parallel_for(0, args.N, 16, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      double sum = 0;
      for (int64_t c = 0; c < args.C; ++c) {
        sum += args.x[n * args.C + c];
        args.out[n * args.C + c] = static_cast<float>(sum);
      }
    }
  });
}
OPSMITH_KERNEL(kernelbench, cumsum, cpu)
