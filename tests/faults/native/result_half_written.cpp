#include "fault.h"

KERNEL {
  for (int64_t i = 0; i < a.N; ++i) {
    if (TWIN(a.x[i] != 0, true)) a.out[i] = 2 * a.x[i];
  }
}
