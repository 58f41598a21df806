#include "fault.h"

// The next element is read for nothing behind the last one.
KERNEL {
  for (int64_t i = 0; i < a.N; ++i) {
    const float next = TWIN(a.x[i + 1], i + 1 < a.N ? a.x[i + 1] : 0);
    // What is read has to matter, or the compiler leaves the read out.
    a.out[i] = 2 * a.x[i] + (next == 12345.678f ? 1.0f : 0.0f);
  }
}
