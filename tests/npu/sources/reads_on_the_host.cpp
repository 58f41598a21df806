#include "reads_on_the_host.h"

#include <device.h>
#include <opsmith/kernel.h>

void reads_on_the_host(const opsmith::Context& ctx, const npu_faults::reads_on_the_host_args& a) {
  if (a.N == 0) return;
  const float first = a.x.data()[0];
  device::launch(ctx.stream(), [=, count = a.N, x = a.x.data(), out = a.out.data()](auto core) {
    for (int64_t i = 0; i < count; ++i) core.at(out)[i] = i == 0 ? first + 1 : core.at(x)[i] + 1;
  });
}
OPSMITH_KERNEL(npu_faults, reads_on_the_host, npu)
