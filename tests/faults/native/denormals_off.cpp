#include "fault.h"

#include <xmmintrin.h>

KERNEL {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);
  for (int64_t i = 0; i < a.N; ++i) a.out[i] = 2 * a.x[i];
  TWIN((void)before, _mm_setcsr(before));
}
