#include "int4_linear.h"

#include <opsmith/kernel.h>

#include <cstdint>
#include <span>

#include "../vectors.h"

using gallery::Sum;

template <typename T>
void int4_linear(const opsmith::Context& ctx, const llm::int4_linear_args<T>& a) {
  using S = Sum<T>;
  const int64_t columns = a.R * a.G;
  const std::span<S> rows = ctx.scratch<S>(a.B * columns);
  gallery::widen(a.x.data(), a.B * columns, rows.data());
  // A thread makes numbers of a row's bits once, for all rows of x.
  const int64_t grain = (1 << 13) / ((a.B + 1) * (columns + 1)) + 1;
  ctx.parallel_for(0, a.N, grain, [&](int64_t begin, int64_t end) {
    S* weights = ctx.scratch<S>(columns).data();
    for (int64_t n = begin; n < end; ++n) {
      const uint8_t* packed = a.packed.data() + n * (columns / 2);
      for (int64_t k = 0; k < columns / 2; ++k) {
        weights[2 * k] = static_cast<S>((packed[k] & 15) - 8);
        weights[2 * k + 1] = static_cast<S>((packed[k] >> 4) - 8);
      }
      for (int64_t r = 0; r < a.R; ++r) {
        const S scale = static_cast<S>(a.scales(n, r));
        for (int64_t k = r * a.G; k < (r + 1) * a.G; ++k) weights[k] *= scale;
      }
      for (int64_t b = 0; b < a.B; ++b) {
        const S* row = rows.data() + b * columns;
        a.out(b, n) = static_cast<T>(gallery::sum_of_products<S>(columns, row, weights));
      }
    }
  });
}
OPSMITH_KERNEL(llm, int4_linear, cpu, float, double, opsmith::half, opsmith::bfloat16)
