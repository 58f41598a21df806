#include <opsmith/kernel.h>

#include "reverse.h"

template <typename T>
void reverse(const opsmith::Context& ctx, const ort_test::reverse_args<T>& a) {
  const int64_t rows = a.N == 0 ? 0 : a.x.numel() / a.N;
  ctx.parallel_for(0, rows, 16, [&](int64_t begin, int64_t end) {
    const auto row = ctx.scratch<T>(a.N);
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t n = 0; n < a.N; ++n) row[n] = a.x[i * a.N + n];
      for (int64_t n = 0; n < a.N; ++n) a.out[i * a.N + n] = row[a.N - 1 - n];
    }
  });
}
OPSMITH_KERNEL(ort_test, reverse, cpu, bool, uint8_t, int8_t, int16_t, int32_t, int64_t,
               opsmith::half, opsmith::bfloat16, float, double)
