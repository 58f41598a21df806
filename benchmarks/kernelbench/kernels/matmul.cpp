#include "matmul.h"

#include <opsmith/kernel.h>

void matmul(const opsmith::Context& ctx, const kernelbench::matmul_args& args) {
  ctx.parallel_for(0, args.M, 4, [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) {
      for (int64_t n = 0; n < args.N; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < args.K; ++k) {
          sum += static_cast<double>(args.a[m * args.K + k]) * args.b[k * args.N + n];
        }
        args.out[m * args.N + n] = static_cast<float>(sum);
      }
    }
  });
}
OPSMITH_KERNEL(kernelbench, matmul, cpu)
