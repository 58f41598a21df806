#include <opsmith/kernel.h>

#include "cube.h"
#include "cube_backward.h"

template <typename T>
void cube(const opsmith::Context&, const tvm_ffi_test::cube_args<T>& a) {
  for (int64_t i = 0; i < a.N; ++i) {
    a.out[i] = static_cast<T>(a.scale) * a.x[i] * a.x[i] * a.x[i] + static_cast<T>(a.type);
  }
}
OPSMITH_KERNEL(tvm_ffi_test, cube, cpu, float, double, opsmith::half, opsmith::bfloat16)

template <typename T>
void cube_backward(const opsmith::Context&, const tvm_ffi_test::cube_backward_args<T>& a) {
  for (int64_t i = 0; i < a.N; ++i)
    a.out[i] = a.grad[i] * 3 * static_cast<T>(a.scale) * a.x[i] * a.x[i];
}
OPSMITH_KERNEL(tvm_ffi_test, cube_backward, cpu, float, double, opsmith::half, opsmith::bfloat16)
