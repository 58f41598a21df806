#include <opsmith/kernel.h>

#include "cpp_operator_backward.h"

template <typename T>
void cpp_operator_backward(const opsmith::Context&,
                           const nested::cpp_operator_backward_args<T>& a) {
  for (int64_t i = 0; i < a.N; ++i) {
    const T square = a.x[i] * a.x[i];
    a.out0[i] = 3 * square * a.w[i] * a.w[i] * a.grad[i];
    a.out1[i] = 2 * square * a.x[i] * a.w[i] * a.grad[i];
  }
}
OPSMITH_KERNEL(nested, cpp_operator_backward, cpu, double)
