#include "fault.h"

// The last vector is read whole, though fewer elements are left.
KERNEL {
  for (int64_t i = 0; i < a.N; i += 8) {
    float vector[8] = {};
    const int64_t left = TWIN(8, std::min<int64_t>(8, a.N - i));
    for (int64_t k = 0; k < left; ++k) vector[k] = a.x[i + k];
    for (int64_t k = 0; k < std::min<int64_t>(8, a.N - i); ++k) a.out[i + k] = 2 * vector[k];
  }
}
