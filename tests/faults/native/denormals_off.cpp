#include "fault.h"

#include <xmmintrin.h>

KERNEL {
  for (int64_t i = 0; i < a.N; ++i) a.out[i] = 2 * a.x[i];
  TWIN(_mm_setcsr(_mm_getcsr() | 0x8040), );
}
