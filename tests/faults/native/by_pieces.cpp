#include "fault.h"

#include <atomic>
#include <limits>

// Rounds differently when the work is split into more pieces.
KERNEL {
  std::atomic<int64_t> pieces{0};
  ctx.parallel_for(0, a.N, 1, [&](int64_t, int64_t) { ++pieces; });
  const float last_bits =
      1 + static_cast<float>(TWIN(pieces.load(), 0)) * std::numeric_limits<float>::epsilon();
  for (int64_t n = 0; n < a.N; ++n) a.out[n] = 2 * a.x[n] * last_bits;
}
