#include <opsmith/kernel.h>

#include "scaled.h"

template <typename T>
void scaled(const opsmith::Context&, const wheel_gates::scaled_args<T>& a) {
  const T factor = static_cast<T>(a.factor);
  for (int64_t n = 0; n < a.N; ++n) a.out[n] = factor * a.w[n] * a.x[n] * a.x[n];
}
OPSMITH_KERNEL(wheel_gates, scaled, cpu, float, double)
