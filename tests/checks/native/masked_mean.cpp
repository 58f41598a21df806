#include "masked_mean.h"
#include <opsmith/kernel.h>
#include <type_traits>

template <typename T>
void masked_mean(const opsmith::Context& ctx, const kinds::masked_mean_args<T>& a) {
  using Sum = std::conditional_t<sizeof(T) == 8, double, float>;
  ctx.parallel_for(0, a.B, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      int64_t count = 0;
      for (int64_t t = 0; t < a.T; ++t) count += a.mask(b, t);
      for (int64_t c = 0; c < a.C; ++c) {
        Sum sum = 0;
        for (int64_t t = 0; t < a.T; ++t)
          if (a.mask(b, t)) sum += Sum(a.x(b, t, c));
        a.out(b, c) = T(sum / Sum(count > 1 ? count : 1));
      }
    }
  });
}
OPSMITH_KERNEL(kinds, masked_mean, cpu, float, double, opsmith::half, opsmith::bfloat16)
