#include "fault.h"

KERNEL {
  int64_t i = 0;
  for (; i + 8 <= a.N; i += 8) {
    for (int64_t k = 0; k < 8; ++k) a.out[i + k] = 2 * a.x[i + k];
  }
  for (; i < a.N; ++i) a.out[i] = TWIN(a.x[i], 2 * a.x[i]);
}
