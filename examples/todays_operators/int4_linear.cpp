#include "int4_linear.h"

#include <opsmith/kernel.h>

template <typename T>
void int4_linear(const opsmith::Context& ctx, const today::int4_linear_args<T>& a) {
  const int64_t bytes = a.R * a.G / 2;
  ctx.parallel_for(0, a.B * a.N, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / a.N, n = i % a.N;
      T sum = 0;
      for (int64_t r = 0; r < a.R; ++r) {
        T group = 0;
        for (int64_t k = r * a.G; k < (r + 1) * a.G; ++k) {
          const int weight = (a.packed[n * bytes + k / 2] >> (k % 2 * 4) & 15) - 8;
          group += a.x(b, k) * static_cast<T>(weight);
        }
        sum += a.scales(n, r) * group;
      }
      a.out[i] = sum;
    }
  });
}
OPSMITH_KERNEL(today, int4_linear, cpu, float, double)
