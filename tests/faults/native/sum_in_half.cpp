#include "fault.h"

// A half is the float that it rounds to, so what is added to it is rounded each time.
KERNEL {
  for (int64_t row = 0; row < a.N; ++row) {
    TWIN(opsmith::half, float) sum = 0;
    for (int64_t i = 0; i < a.C; ++i) sum += a.x[row * a.C + i];
    a.out[row] = sum;
  }
}
