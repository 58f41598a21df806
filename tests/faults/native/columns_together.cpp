#include "fault.h"

#include <atomic>

// Pieces of the rows add to the same sums.
KERNEL {
  for (int64_t c = 0; c < a.C; ++c) a.out[c] = 0;
  ctx.parallel_for(0, a.N, 64, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t c = 0; c < a.C; ++c) {
        const float value = a.x[n * a.C + c];
        std::atomic_ref<float> sum(a.out[c]);
        float old = sum.load();
        TWIN(a.out[c] += value, while (!sum.compare_exchange_weak(old, old + value)){});
      }
    }
  });
}
