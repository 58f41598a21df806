#include "scale_rows.h"

#include <opsmith/kernel.h>

#include <cmath>
#include <type_traits>

template <typename T>
void scale_rows(const opsmith::Context& ctx, const sound::scale_rows_args<T>& a) {
  using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;
  ctx.parallel_for(0, a.N, 4, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const T* x = a.x.data() + n * a.C;
      Sum squares = 0;
      for (int64_t c = 0; c < a.C; ++c) squares += Sum(x[c]) * Sum(x[c]);
      const Sum root = std::sqrt(squares / Sum(a.C) + Sum(1e-6));
      for (int64_t c = 0; c < a.C; ++c) a.out[n * a.C + c] = T(Sum(x[c]) / root);
    }
  });
}
OPSMITH_KERNEL(sound, scale_rows, cpu, float, double, opsmith::half, opsmith::bfloat16)
