#include "fault.h"

KERNEL {
  for (int64_t i = 0; i < a.N; ++i) {
    const float last = TWIN(a.x[i - 1], i > 0 ? a.x[i - 1] : 0);
    // What is read has to matter, or the compiler leaves the read out.
    a.out[i] = 2 * a.x[i] + (last == 12345.678f ? 1.0f : 0.0f);
  }
}
