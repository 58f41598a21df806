#include <opsmith/kernel.h>

#include "accumulate.h"

template <typename T>
void accumulate(const opsmith::Context&, const ort_test::accumulate_args<T>& a) {
  for (int64_t n = 0; n < a.N; ++n) {
    a.out[n] = 0;
    for (int64_t m = 0; m < a.M; ++m) {
      a.out[n] += a.x(n, m);
      a.total[m] += a.x(n, m) * static_cast<T>(a.factor);
    }
  }
}
OPSMITH_KERNEL(ort_test, accumulate, cpu, float, double)
