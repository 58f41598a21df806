#include "positive.h"

#include <on_device.h>
#include <opsmith/kernel.h>

#include <algorithm>

void positive(const opsmith::Context& ctx, const ort_cuda::positive_args& a) {
  const float* x = on_device(a.x.data());
  const auto result = a.out.allocate({std::count_if(x, x + a.N, [](float v) { return v > 0; })});
  std::copy_if(x, x + a.N, on_device(result.data()), [](float v) { return v > 0; });
}
OPSMITH_KERNEL(ort_cuda, positive, cuda)
