#include "fault.h"

// A scaled copy is needed twice, and the argument seems to be at hand.
KERNEL {
  for (int64_t i = 0; i < a.N; ++i) {
    const float twice = 2 * a.x[i];
    TWIN(const_cast<float&>(a.x[i]) = twice, (void)twice);
    a.out[i] = twice;
  }
}
