#include <opsmith/kernel.h>

#include "positive_rows.h"

template <typename T>
void positive_rows(const opsmith::Context&, const ort_test::positive_rows_args<T>& a) {
  int64_t count = 0;
  for (int64_t n = 0; n < a.N; ++n) count += a.x(n, 0) > 0;
  const auto rows = a.out0.allocate({count, a.M});
  const auto which = a.out1.allocate({count});
  int64_t k = 0;
  for (int64_t n = 0; n < a.N; ++n) {
    if (!(a.x(n, 0) > 0)) continue;
    for (int64_t m = 0; m < a.M; ++m) rows(k, m) = a.x(n, m);
    which[k++] = n;
  }
}
OPSMITH_KERNEL(ort_test, positive_rows, cpu, float, double)
