#include "fault.h"

#include <cmath>

KERNEL {
  for (int64_t row = 0; row < a.N; ++row) {
    float most = -INFINITY;
    TWIN(opsmith::half, float) sum = 0;
    for (int64_t i = row * a.C; i < (row + 1) * a.C; ++i) {
      const float x = a.x[i];
      if (std::isnan(most)) break;
      most = x > most || std::isnan(x) ? x : most;
    }
    for (int64_t i = row * a.C; i < (row + 1) * a.C; ++i) {
      sum += std::exp(static_cast<float>(a.x[i]) - most);
    }
    for (int64_t i = row * a.C; i < (row + 1) * a.C; ++i) {
      a.out[i] = std::exp(static_cast<float>(a.x[i]) - most) / static_cast<float>(sum);
    }
  }
}
