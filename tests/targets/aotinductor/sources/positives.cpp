#include "positives.h"

#include <opsmith/kernel.h>

template <typename T>
void positives(const opsmith::Context&, const aoti_test::positives_args<T>& a) {
  int64_t count = 0;
  for (int64_t i = 0; i < a.N; ++i) count += a.x[i] > 0;
  const auto out = a.out.allocate({count});
  int64_t at = 0;
  for (int64_t i = 0; i < a.N; ++i) {
    if (a.x[i] > 0) out[at++] = a.x[i];
  }
}
OPSMITH_KERNEL(aoti_test, positives, cpu, float, double)
