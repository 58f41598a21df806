// Where x lies, and its strides, as the caller has them.
#include <opsmith/kernel.h>

#include "look_strided.h"

template <typename T>
void look_strided(const opsmith::Context&, const python_test::look_strided_args<T>& a) {
  a.out[0] = reinterpret_cast<intptr_t>(a.x.data());
  a.out[1] = a.x.stride(0);
  a.out[2] = a.x.stride(1);
}
OPSMITH_KERNEL(python_test, look_strided, cpu, float, double)
