// Dtypes that kernels store rather than compute in.
#include <opsmith/kernel.h>

#include "narrow.h"

void narrow(const opsmith::Context&, const kernels_test::narrow_args& a) {
  for (int64_t i = 0; i < a.N; ++i) {
    const float sum = static_cast<float>(a.x[i]) + static_cast<float>(a.y[i]) +
                      static_cast<float>(a.i16[i]) + static_cast<float>(a.i32[i]);
    a.out0[i] = sum;
    a.out1[i] = opsmith::float8_e4m3fn(sum);
    a.out2[i] = static_cast<uint16_t>(a.i16[i] + 1);
    a.out3[i] = a.i64[i] + 1;
  }
}
OPSMITH_KERNEL(kernels_test, narrow, cpu)
