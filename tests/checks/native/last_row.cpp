#include <opsmith/kernel.h>

#include "last_row.h"

template <typename T>
void last_row(const opsmith::Context& ctx, const faults::last_row_args<T>& a) {
  ctx.parallel_for(0, a.N, 8, [&](int64_t begin, int64_t end) {
    // The fault: of each thread's part the last row is left out.
    for (int64_t n = begin; n < end - 1; ++n) {
      for (int64_t c = 0; c < a.C; ++c) a.out[n * a.C + c] = a.x[n * a.C + c] * T(2);
    }
    for (int64_t c = 0; c < a.C; ++c) a.out[(end - 1) * a.C + c] = T(0);
  });
}
OPSMITH_KERNEL(faults, last_row, cpu, float, double)
