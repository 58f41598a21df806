#include "fault.h"

// Where to write next is counted by all pieces together, so it depends on their order.
KERNEL {
  int64_t next = 0;
  ctx.parallel_for(0, a.N, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) a.out[TWIN(next++, i)] = 2 * a.x[i];
  });
  (void)next;
}
