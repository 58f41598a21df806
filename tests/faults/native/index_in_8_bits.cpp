#include "fault.h"

// Positions beyond 127 become negative.
KERNEL {
  for (int64_t i = 0; i < a.N; ++i) a.out[i] = 0;
  for (int64_t i = 0; i < a.N; ++i) {
    const auto at = static_cast<TWIN(int8_t, int64_t)>(i);
    if (at >= 0) a.out[at] = 2 * a.x[i];
  }
}
