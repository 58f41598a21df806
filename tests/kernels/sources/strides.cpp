// Returns the strides that it sees of x and of y.
#include <opsmith/kernel.h>

#include "strides.h"

template <typename T>
void strides(const opsmith::Context&, const kernels_test::strides_args<T>& a) {
  a.out0[0] = a.x.stride(0);
  a.out0[1] = a.x.stride(1);
  a.out0[2] = a.y.stride(0);
  a.out0[3] = a.y.stride(1);
  for (int64_t i = 0; i < a.N; ++i) {
    for (int64_t j = 0; j < a.M; ++j) a.out1(i, j) = a.x(i, j) + a.y(i, j);
  }
}
OPSMITH_KERNEL(kernels_test, strides, cpu, float, opsmith::complex64)
