#include "fault.h"

// The right twin rounds each product to half, as the instructions for pairs of halves do.
KERNEL {
  for (int64_t row = 0; row < a.N; ++row) {
    TWIN(opsmith::half, float) sum = 0;
    for (int64_t i = row * a.C; i < (row + 1) * a.C; ++i) sum += a.x[i] * a.y[i];
    a.out[row] = sum;
  }
}
