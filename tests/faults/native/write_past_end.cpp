#include "fault.h"

KERNEL {
  for (int64_t i = 0; i < a.N TWIN(+1, ); ++i) a.out[i] = i < a.N ? 2 * a.x[i] : 0;
}
