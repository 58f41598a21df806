#include "fault.h"

KERNEL {
  ctx.parallel_for(0, a.N, 8, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      // Of each thread's part the last row is left out.
      for (int64_t c = 0; c < a.C; ++c) {
        a.out[n * a.C + c] = TWIN(n == end - 1, false) ? 0 : 2 * a.x[n * a.C + c];
      }
    }
  });
}
