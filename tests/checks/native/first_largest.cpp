#include "first_largest.h"

#include <opsmith/kernel.h>

template <typename T>
void first_largest(const opsmith::Context& ctx, const sound::first_largest_args<T>& a) {
  const int64_t columns = a.C + 1;
  ctx.parallel_for(0, a.N, 4, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const T* x = a.x.data() + n * columns;
      int64_t found = 0;
      // The first NaN is larger than everything, and of equal elements the first one counts.
      for (int64_t c = 1; c < columns && x[found] == x[found]; ++c) {
        if (x[c] > x[found] || x[c] != x[c]) found = c;
      }
      a.out0[n] = x[found];
      a.out1[n] = found;
    }
  });
}
OPSMITH_KERNEL(sound, first_largest, cpu, float, double)
