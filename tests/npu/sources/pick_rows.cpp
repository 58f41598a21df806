// Values of the device's memory are the kernel's to judge: it reads nothing beside it.
#include "pick_rows.h"

#include <device.h>
#include <opsmith/kernel.h>

void pick_rows(const opsmith::Context& ctx, const npu_tests::pick_rows_args& a) {
  device::launch(ctx.stream(), [=, x = a.x.data(), index = a.index.data(), out = a.out.data(),
                                n = a.N, m = a.M, k = a.K](device::Core core) {
    for (int64_t i = 0; i < k * m; ++i) {
      const int64_t row = core.at(index)[i / m];
      core.at(out)[i] = row < 0 || row >= n ? -1 : core.at(x)[row * m + i % m];
    }
  });
}
OPSMITH_KERNEL(npu_tests, pick_rows, npu)
