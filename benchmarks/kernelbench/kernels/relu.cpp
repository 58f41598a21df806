#include "relu.h"

#include <opsmith/kernel.h>

void relu(const opsmith::Context& ctx, const kernelbench::relu_args& args) {
  ctx.parallel_for(0, args.N * args.C, 4096, [&](int64_t begin, int64_t end) {
    // NaN is not less than zero, and stays.
    for (int64_t i = begin; i < end; ++i) args.out[i] = args.x[i] <= 0 ? 0 : args.x[i];
  });
}
OPSMITH_KERNEL(kernelbench, relu, cpu)
