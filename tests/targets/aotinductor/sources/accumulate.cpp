#include "accumulate.h"

#include <opsmith/kernel.h>

template <typename T>
void accumulate(const opsmith::Context&, const aoti_test::accumulate_args<T>& a) {
  for (int64_t i = 0; i < a.N; ++i) a.total[i] += a.x[i];
}
OPSMITH_KERNEL(aoti_test, accumulate, cpu, float, double)
