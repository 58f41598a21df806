#include <opsmith/kernel.h>

#include "by_threads.h"

// A piece for each thread, with rows inside.
void by_threads(const opsmith::Context& ctx, const narrow::by_threads_args& a) {
  const int64_t threads = ctx.num_threads(), rows = (a.N + threads - 1) / threads;
  ctx.parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin * rows; n < end * rows && n < a.N; ++n) {
      ctx.parallel_for(0, a.C, 1024, [&](int64_t first, int64_t last) {
        for (int64_t c = first; c < last; ++c) a.out[n * a.C + c] = 2 * a.x[n * a.C + c];
      });
    }
  });
}
OPSMITH_KERNEL(narrow, by_threads, cpu)
