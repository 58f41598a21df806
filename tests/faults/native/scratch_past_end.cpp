#include "fault.h"

KERNEL {
  const auto rows = ctx.scratch<float>(a.N);
  for (int64_t i = 0; i < a.N; ++i) rows[i TWIN(+1, )] = a.x[i];
  for (int64_t i = 0; i < a.N; ++i) a.out[i] = 2 * rows[i TWIN(+1, )];
}
