#include <opsmith/kernel.h>

#include "scaled_backward.h"

template <typename T>
void scaled_backward(const opsmith::Context&, const wheel_gates::scaled_backward_args<T>& a) {
  const T factor = static_cast<T>(a.factor);
  for (int64_t n = 0; n < a.N; ++n) {
    a.out0[n] = 2 * factor * a.w[n] * a.x[n] * a.grad[n];
    a.out1[n] = factor * a.x[n] * a.x[n] * a.grad[n];
  }
}
OPSMITH_KERNEL(wheel_gates, scaled_backward, cpu, float, double)
