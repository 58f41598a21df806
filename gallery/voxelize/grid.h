// What the kernels share: the cell of a point.
#pragma once

#include <opsmith/kernel.h>
#include <opsmith/math.h>

#include <cstdint>
#include <string_view>

namespace perception {

inline constexpr int64_t kMostCells = int64_t{1} << 21;  // along an axis

// The number of the cell of a point outside of the grid.
inline constexpr int64_t kOutside = -1;

struct Grid {
  double low[3], size[3];
  int64_t cells[3];

  // In double precision for every dtype, so that no two of them disagree about a cell.
  template <typename T>
  OPSMITH_HOST_DEVICE int64_t cell_of(const T* point) const {
    int64_t number = 0;
    for (int axis = 2; axis >= 0; --axis) {
      const double place = (static_cast<double>(point[axis]) - low[axis]) / size[axis];
      // NaN is outside, too.
      if (!(place >= 0 && place < static_cast<double>(cells[axis]))) return kOutside;
      number = number * cells[axis] + static_cast<int64_t>(place);
    }
    return number;
  }

  // Writes z, y and x.
  OPSMITH_HOST_DEVICE void write_place(int64_t number, int32_t* to) const {
    to[0] = static_cast<int32_t>(number / cells[0] / cells[1]);
    to[1] = static_cast<int32_t>(number / cells[0] % cells[1]);
    to[2] = static_cast<int32_t>(number % cells[0]);
  }
};

// Of arrays of numbers.
template <typename Size, typename Range>
Grid grid_of(const opsmith::Context& ctx, const Size& size, const Range& range) {
  Grid grid;
  for (int axis = 0; axis < 3; ++axis) {
    const double low = range[axis], high = range[axis + 3];
    const double cells = (high - low) / size[axis];
    if (!(cells <= static_cast<double>(kMostCells))) {
      ctx.fail("more than ", kMostCells, " cells along ", std::string_view("xyz").substr(axis, 1));
    }
    grid.low[axis] = low;
    grid.size[axis] = size[axis];
    const int64_t whole = cells > 0 ? static_cast<int64_t>(cells) : 0;
    const double rest = cells - static_cast<double>(whole);
    // Halves to even.
    grid.cells[axis] = whole + (rest > 0.5 || (rest == 0.5 && whole % 2 != 0) ? 1 : 0);
  }
  return grid;
}

// Mixes the bits of a cell's number, for a table of a power of two.
OPSMITH_HOST_DEVICE inline uint64_t hash_of(int64_t number) {
  uint64_t bits = static_cast<uint64_t>(number) * 0x9e3779b97f4a7c15u;
  return bits ^ bits >> 32;
}

// A power of two, so that half of the table or more stays empty.
inline int64_t table_size(int64_t points) {
  int64_t size = 2;
  while (size < 2 * points) size *= 2;
  return size;
}

}  // namespace perception
