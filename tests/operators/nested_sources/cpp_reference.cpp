#include <opsmith/kernel.h>

#include "cpp_reference.h"

template <typename T>
void cpp_reference(const opsmith::Context&, const nested::cpp_reference_args<T>& a) {
  for (int64_t i = 0; i < a.N; ++i) a.out[i] = a.x[i] * a.x[i] * a.x[i] * a.w[i] * a.w[i];
}
OPSMITH_KERNEL(nested, cpp_reference, cpu, double)
