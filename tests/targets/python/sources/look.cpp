// Where x lies, and its strides.
#include <opsmith/kernel.h>

#include "look.h"

template <typename T>
void look(const opsmith::Context&, const python_test::look_args<T>& a) {
  a.out[0] = reinterpret_cast<intptr_t>(a.x.data());
  a.out[1] = a.x.stride(0);
  a.out[2] = a.x.stride(1);
}
OPSMITH_KERNEL(python_test, look, cpu, float, double)
