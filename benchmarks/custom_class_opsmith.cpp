#include "IdentityConvClass_forward.h"

#include <opsmith/kernel.h>

#include <algorithm>

template <typename T>
void IdentityConvClass_forward(const opsmith::Context&,
                               const opsmith_bench::IdentityConvClass_forward_args<T>& a) {
  std::copy(a.x.data(), a.x.data() + a.x.numel(), a.out.data());
}
OPSMITH_KERNEL(opsmith_bench, IdentityConvClass_forward, cpu, float, double)
