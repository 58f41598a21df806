#include "fault.h"

#include <immintrin.h>

// Views begin at any element, but aligned loads do not.
KERNEL {
  int64_t i = 0;
  for (; i + 4 <= a.N; i += 4) {
    const __m128 x = TWIN(_mm_load_ps, _mm_loadu_ps)(a.x.data() + i);
    _mm_storeu_ps(a.out.data() + i, _mm_add_ps(x, x));
  }
  for (; i < a.N; ++i) a.out[i] = 2 * a.x[i];
}
