#include "voxelize.h"

#include <opsmith/kernel.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "grid.h"

template <typename T>
void voxelize(const opsmith::Context& ctx, const perception::voxelize_args<T>& a) {
  const perception::Grid grid = perception::grid_of(ctx, a.voxel_size, a.point_cloud_range);
  // Of each point its cell; then the row of the result that it goes to.
  const std::span<int64_t> rows = ctx.scratch<int64_t>(a.N);
  ctx.parallel_for(0, a.N, 1 << 12, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) rows[i] = grid.cell_of(a.points.data() + i * a.C);
  });
  const int64_t size = perception::table_size(a.N);
  const std::span<int32_t> table = ctx.scratch<int32_t>(size);  // voxels, by their cells
  std::fill(table.begin(), table.end(), -1);
  std::vector<int64_t> cells;
  std::vector<int32_t> counts;
  for (int64_t i = 0; i < a.N; ++i) {
    const int64_t cell = rows[i];
    rows[i] = -1;
    if (cell == perception::kOutside) continue;
    auto at = static_cast<int64_t>(perception::hash_of(cell)) & (size - 1);
    while (table[at] >= 0 && cells[table[at]] != cell) at = (at + 1) & (size - 1);
    if (table[at] < 0) {
      if (static_cast<int64_t>(cells.size()) == a.max_voxels) continue;
      table[at] = static_cast<int32_t>(cells.size());
      cells.push_back(cell);
      counts.push_back(0);
    }
    const int32_t voxel = table[at];
    if (counts[voxel] < a.max_points) rows[i] = voxel * a.max_points + counts[voxel]++;
  }
  const auto count = static_cast<int64_t>(cells.size());
  const auto voxels = a.out0.allocate({count, a.max_points, a.C});
  const auto places = a.out1.allocate({count, 3});
  const auto numbers = a.out2.allocate({count});
  const int64_t each = a.max_points * a.C;
  ctx.parallel_for(0, count, (1 << 14) / each + 1, [&](int64_t begin, int64_t end) {
    std::fill(voxels.data() + begin * each, voxels.data() + end * each, T(0));
  });
  ctx.parallel_for(0, a.N, 1 << 12, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (rows[i] >= 0) {
        std::copy_n(a.points.data() + i * a.C, a.C, voxels.data() + rows[i] * a.C);
      }
    }
  });
  for (int64_t v = 0; v < count; ++v) {
    grid.write_place(cells[v], places.data() + 3 * v);
    numbers[v] = counts[v];
  }
}
OPSMITH_KERNEL(perception, voxelize, cpu, float, double, opsmith::half, opsmith::bfloat16)
