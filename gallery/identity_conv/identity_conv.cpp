#include "identity_conv.h"

#include <opsmith/kernel.h>

#include <algorithm>
#include <cstdint>

template <typename T>
void identity_conv(const opsmith::Context& ctx, const tutorial::identity_conv_args<T>& a) {
  ctx.parallel_for(0, a.x.numel(), 1 << 16, [&](int64_t begin, int64_t end) {
    std::copy(a.x.data() + begin, a.x.data() + end, a.out.data() + begin);
  });
}
OPSMITH_KERNEL(tutorial, identity_conv, cpu, float, double, opsmith::half, opsmith::bfloat16)
