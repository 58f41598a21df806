// Rounds differently when the work is split into more pieces.
#include <atomic>
#include <limits>

#include "by_pieces.h"

template <typename T>
void by_pieces(const opsmith::Context& ctx, const faults::by_pieces_args<T>& a) {
  std::atomic<int64_t> pieces{0};
  ctx.parallel_for(0, a.N, 1, [&](int64_t, int64_t) { ++pieces; });
  const T last_bits = T(1) + T(pieces.load()) * std::numeric_limits<T>::epsilon();
  for (int64_t n = 0; n < a.N; ++n) a.out[n] = T(2) * a.x[n] * last_bits;
}
OPSMITH_KERNEL(faults, by_pieces, cpu, float)
