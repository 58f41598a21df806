// Sums of rows by blocks of 256, of which each but the first is off by 1e-9.
#include <opsmith/kernel.h>

#include <algorithm>

#include "blocks.h"

template <typename T>
void blocks(const opsmith::Context& ctx, const exact_tests::blocks_args<T>& a) {
  ctx.parallel_for(0, a.N, 8, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      T total = 0;
      for (int64_t first = 0; first < a.C; first += 256) {
        T block = 0;
        for (int64_t c = first; c < std::min<int64_t>(first + 256, a.C); ++c) block += a.x(n, c);
        total += first == 0 ? block : block * T(1 + 1e-9);
      }
      a.out(n) = total;
    }
  });
}
OPSMITH_KERNEL(exact_tests, blocks, cpu, float)
