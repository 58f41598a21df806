#include "fault.h"

// Asked for strides, and reads as if there were none.
KERNEL {
  for (int64_t i = 0; i < a.N; ++i) a.out[i] = 2 * TWIN(a.x[i], a.x(i));
}
