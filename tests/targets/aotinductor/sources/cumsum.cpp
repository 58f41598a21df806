#include "cumsum.h"

#include <opsmith/kernel.h>

template <typename T>
void cumsum(const opsmith::Context&, const aoti_test::cumsum_args<T>& a) {
  T sum = 0;
  for (int64_t i = 0; i < a.N; ++i) {
    sum += a.x[i];
    a.out[i] = sum + static_cast<T>(a.text.size());
  }
}
OPSMITH_KERNEL(aoti_test, cumsum, cpu, float, double)
