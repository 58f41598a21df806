// x^3 and its gradient, for half numbers alone. `how` 1 plants a constant that is wrong in its
// tenth digit.
#include <opsmith/kernel.h>

#include "cubed.h"
#include "cubed_backward.h"

template <typename T>
void cubed(const opsmith::Context& ctx, const exact_tests::cubed_args<T>& a) {
  for (int64_t i = 0; i < a.N; ++i) {
    const float x = static_cast<float>(a.x[i]);
    double cube = x * (x * x);
    if (a.how == 1) cube *= 1.000000001;
    if (a.how < 0) ctx.fail("no cube of ", a.x[i], ", ", x, " or ", cube);
    a.out[i] = static_cast<T>(cube);
  }
}
OPSMITH_KERNEL(exact_tests, cubed, cpu, opsmith::half)

template <typename T>
void cubed_backward(const opsmith::Context&, const exact_tests::cubed_backward_args<T>& a) {
  const T three = a.how == 1 ? T(3.000000001) : T(3);
  for (int64_t i = 0; i < a.N; ++i) a.out[i] = a.grad[i] * a.x[i] * three * a.x[i];
}
OPSMITH_KERNEL(exact_tests, cubed_backward, cpu, opsmith::half)
