#include "csr_matmul.h"

#include <opsmith/kernel.h>

template <typename Ids, typename T>
void csr_matmul(const opsmith::Context& ctx, const today::csr_matmul_args<Ids, T>& a) {
  ctx.parallel_for(0, a.R, 16, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t d = 0; d < a.D; ++d) a.out(r, d) = 0;
      for (int64_t p = a.offsets[r]; p < a.offsets[r + 1]; ++p) {
        for (int64_t d = 0; d < a.D; ++d) a.out(r, d) += a.values[p] * a.dense(a.columns[p], d);
      }
    }
  });
}
OPSMITH_KERNEL(today, csr_matmul, cpu, (int32_t, int64_t), (float, double))
