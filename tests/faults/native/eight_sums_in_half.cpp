#include "fault.h"

KERNEL {
  for (int64_t row = 0; row < a.N; ++row) {
    TWIN(opsmith::half, float) sums[8] = {};
    for (int64_t i = 0; i < a.C; ++i) sums[i % 8] += a.x[row * a.C + i];
    for (int64_t k = 1; k < 8; ++k) sums[0] += sums[k];
    a.out[row] = sums[0];
  }
}
