#include "narrow.h"

KERNEL {
  ctx.parallel_for(0, a.N * a.C, 1, [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      const Index n = plane / a.C, c = plane % a.C;
      const Index offset = n * Index(a.C) * Index(a.H) * Index(a.W) + c * Index(a.H) * Index(a.W);
      for (int64_t i = 0; i < a.H * a.W; ++i) a.out[offset + i] = 2 * a.x[offset + i];
    }
  });
}
