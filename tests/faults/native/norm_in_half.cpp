#include "fault.h"

#include <cmath>

KERNEL {
  for (int64_t row = 0; row < a.N; ++row) {
    TWIN(opsmith::half, float) sum = 0;
    for (int64_t i = row * a.C; i < (row + 1) * a.C; ++i) {
      sum += static_cast<float>(a.x[i]) * static_cast<float>(a.x[i]);
    }
    a.out[row] = std::sqrt(static_cast<float>(sum));
  }
}
