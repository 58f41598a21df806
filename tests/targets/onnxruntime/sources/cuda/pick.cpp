// "Device code" for memory that the host cannot read; see kernels/sources/on_device.h.
#include "pick.h"

#include <on_device.h>
#include <opsmith/kernel.h>

template <typename T>
void pick(const opsmith::Context& ctx, const ort_cuda::pick_args<T>& a) {
  if (ctx.stream() != reinterpret_cast<void*>(77)) ctx.fail("this is not the provider's stream");
  if (a.scale == 0) ctx.fail("asked to fail with ", a.others.size(), " others");
  T* sums = on_device(ctx.scratch<T>(a.N * a.M + 1).data());
  for (int64_t i = 0; i < a.N * a.M; ++i) {
    sums[i] = on_device(a.x.data())[i];
    for (int64_t j = 0; j < a.others.size(); ++j) sums[i] += on_device(a.others[j].data())[i];
  }
  for (int64_t k = 0; k < a.K; ++k) {
    // Whoever trusts values of the device's memory looks at them there.
    const int64_t row = on_device(a.index.data())[k];
    for (int64_t m = 0; m < a.M; ++m) {
      on_device(a.out.data())[k * a.M + m] =
          row < 0 || row >= a.N ? T(-1) : sums[row * a.M + m] * static_cast<T>(a.scale);
    }
  }
}
OPSMITH_KERNEL(ort_cuda, pick, cuda, float, double)
