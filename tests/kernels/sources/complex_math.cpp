#include <opsmith/kernel.h>

#include "complex_math.h"

// By the names that std::complex has.
template <typename T>
void complex_math(const opsmith::Context&, const kernels_test::complex_math_args<T>& a) {
  for (int64_t i = 0; i < a.N; ++i) {
    const T z = a.z[i];
    a.out0[i] = T(opsmith::abs(z), opsmith::arg(z));
    a.out1[i] = opsmith::conj(z) * z / T(opsmith::norm(z));
    a.out2[i] = T(opsmith::imag(z), opsmith::real(z));
    a.out3[i] = opsmith::exp(z) + opsmith::sqrt(z) * opsmith::sin(z) - opsmith::pow(z, T(2)) +
                opsmith::log(z);
  }
}
OPSMITH_KERNEL(kernels_test, complex_math, cpu, opsmith::complex64, opsmith::complex128)
