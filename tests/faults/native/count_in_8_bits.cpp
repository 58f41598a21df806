#include "fault.h"

// A count beyond 127.
KERNEL {
  TWIN(int8_t, int64_t) count = 0;
  for (int64_t i = 0; i < a.N; ++i) ++count;
  for (int64_t i = 0; i < a.N; ++i) a.out[i] = a.x[i] * static_cast<float>(count);
}
