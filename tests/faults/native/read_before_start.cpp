#include "fault.h"

KERNEL {
  for (int64_t i = 0; i < a.N; ++i) {
    const float last = TWIN(a.x[i - 1], i > 0 ? a.x[i - 1] : 0);
    a.out[i] = 2 * a.x[i] + (last > 1e37f ? 1.0f : 0.0f);
  }
}
