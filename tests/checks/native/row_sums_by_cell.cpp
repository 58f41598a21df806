#include "row_sums_by_cell.h"

#include <opsmith/kernel.h>

#include <algorithm>

template <typename T>
void row_sums_by_cell(const opsmith::Context& ctx, const sound::row_sums_by_cell_args<T>& a) {
  std::fill_n(a.out.data(), a.count * a.C, T(0));
  // Each thread has columns of its own, so the order of a cell's terms is the same each time.
  ctx.parallel_for(0, a.C, 8, [&](int64_t begin, int64_t end) {
    for (int64_t n = 0; n < a.N; ++n) {
      for (int64_t c = begin; c < end; ++c) a.out[a.cells[n] * a.C + c] += a.x[n * a.C + c];
    }
  });
}
OPSMITH_KERNEL(sound, row_sums_by_cell, cpu, float, double)
