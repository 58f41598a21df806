#include <opsmith/kernel.h>

#include "add_one.h"

template <typename T>
void add_one(const opsmith::Context&, const kernels_test::add_one_args<T>& a) {
  for (int64_t i = 0; i < a.x.numel(); ++i) a.x[i] += T(1);
  if (a.y) {
    for (int64_t i = 0; i < a.y.numel(); ++i) a.y[i] += a.x.numel();
  }
}
OPSMITH_KERNEL(kernels_test, add_one, cpu, float, opsmith::complex64)
