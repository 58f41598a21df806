// Two launches and scratch memory between them: right only if both are on the call's stream, and
// the scratch outlives them.
#include "add_scaled.h"

#include <device.h>
#include <opsmith/kernel.h>

template <typename T>
void add_scaled(const opsmith::Context& ctx, const npu_tests::add_scaled_args<T>& a) {
  const int64_t count = a.out.numel();
  if (count == 0) return;
  T* scaled = ctx.scratch<T>(count).data();
  device::launch(ctx.stream(), [=, y = a.y.data(), alpha = a.alpha](device::Core core) {
    for (int64_t i = 0; i < count; ++i) {
      core.at(scaled)[i] = static_cast<T>(static_cast<double>(core.at(y)[i]) * alpha);
    }
  });
  device::launch(ctx.stream(), [=, x = a.x.data(), out = a.out.data()](device::Core core) {
    for (int64_t i = 0; i < count; ++i) core.at(out)[i] = core.at(x)[i] + core.at(scaled)[i];
  });
}
OPSMITH_KERNEL(npu_tests, add_scaled, npu, float, double)
