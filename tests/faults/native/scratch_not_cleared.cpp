#include "fault.h"

KERNEL {
  const auto sums = ctx.scratch<float>(a.N);
  TWIN(, std::fill(sums.begin(), sums.end(), 0.0f));
  for (int64_t i = 0; i < a.N; ++i) sums[i] += 2 * a.x[i];
  for (int64_t i = 0; i < a.N; ++i) a.out[i] = sums[i];
}
