#include "fault.h"

#include <cstdlib>

KERNEL {
  for (int64_t i = 0; i < a.N; ++i) a.out[i] = 2 * a.x[i];
  if (TWIN(a.N == 5, false)) std::exit(0);
}
