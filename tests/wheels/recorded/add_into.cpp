#include <opsmith/kernel.h>

#include "add_into.h"

template <typename T>
void add_into(const opsmith::Context&, const wheel_gates::add_into_args<T>& a) {
  for (int64_t n = 0; n < a.N; ++n) a.out[n] += a.x[n];
}
OPSMITH_KERNEL(wheel_gates, add_into, cpu, float, double)
