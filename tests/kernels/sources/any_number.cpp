#include <opsmith/kernel.h>

#include "any_number.h"

template <typename T>
void any_number(const opsmith::Context&, const kernels_test::any_number_args<T>& a) {
  for (int64_t i = 0; i < a.N; ++i) {
    a.out0[i] = opsmith::conj(a.x[i]);
    a.out1[i] = static_cast<T>(opsmith::abs(a.x[i]));
    a.out2[i] = static_cast<T>(opsmith::real(a.x[i]) + opsmith::imag(a.x[i]));
  }
}
OPSMITH_KERNEL(kernels_test, any_number, cpu, float, double, opsmith::half, opsmith::bfloat16,
               opsmith::complex64, opsmith::complex128, uint8_t, int8_t, int32_t, int64_t)
