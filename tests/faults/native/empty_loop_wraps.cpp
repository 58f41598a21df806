#include "fault.h"

// N - 1 of an empty argument.
KERNEL {
  for (size_t i = 0; i < static_cast<size_t>(a.N TWIN(-1, )); ++i) a.out[i] = 2 * a.x[i];
  TWIN(a.out[a.N - 1] = 2 * a.x[a.N - 1], );
}
