#include <opsmith/kernel.h>

#include "copy_any.h"

template <typename T>
void copy_any(const opsmith::Context&, const kernels_test::copy_any_args<T>& a) {
  for (int64_t i = 0; i < a.N; ++i) a.out[i] = a.x[i];
}
OPSMITH_KERNEL(kernels_test, copy_any, cpu, bool, uint8_t, int8_t, int16_t, int32_t, int64_t,
               opsmith::half, opsmith::bfloat16, float, double, opsmith::complex64,
               opsmith::complex128, opsmith::float8_e4m3fn, opsmith::float8_e5m2, uint16_t,
               uint32_t, uint64_t)
