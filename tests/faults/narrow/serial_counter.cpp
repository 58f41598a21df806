#include "narrow.h"

KERNEL {
  for (Index i = 0; i < a.N; ++i) a.out[i] = 2 * a.x[i];
}
