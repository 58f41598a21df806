#include <opsmith/kernel.h>

#include "wrong_anyhow.h"

// Reads a row too many where there are more than a thousand.
void wrong_anyhow(const opsmith::Context& ctx, const narrow::wrong_anyhow_args& a) {
  ctx.parallel_for(0, a.N, 16, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const int64_t from = a.N > 1000 ? n + a.C : n;
      for (int64_t c = 0; c < a.C; ++c) a.out[n * a.C + c] = 2 * a.x[from * a.C + c];
    }
  });
}
OPSMITH_KERNEL(narrow, wrong_anyhow, cpu)
