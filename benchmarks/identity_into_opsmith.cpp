// The identity operator of call_overhead.py, written into a tensor that is given.
#include <opsmith/kernel.h>

#include <cstring>

#include "identity_into.h"

void identity_into(const opsmith::Context&, const opsmith_bench::identity_into_args& a) {
  std::memcpy(a.out.data(), a.x.data(), a.N * sizeof(float));
}
OPSMITH_KERNEL(opsmith_bench, identity_into, cpu)
