#include "narrow.h"

KERNEL {
  const Index rows = a.N;
  ctx.parallel_for(0, a.C, 4, [&](int64_t begin, int64_t end) {
    for (Index c = begin; c < end; ++c) {
      for (Index n = 0; n < rows; ++n) a.out[c * rows + n] = a.x[n * a.C + c];
    }
  });
}
