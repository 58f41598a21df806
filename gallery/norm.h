// Rows scaled by their root mean square on the CPU, and the gradients: what rms_norm and
// add_rms_norm share.
#pragma once

#include <opsmith/kernel.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <type_traits>

#include "vectors.h"

namespace norms {

// Sums are taken in float for half types, in double for others: the squares of a row of float may
// be beyond float's range where the result is not.
template <typename T>
using Wide = std::conditional_t<sizeof(T) < sizeof(float), float, double>;

// A row's factor. One thread takes the sum, whatever the other rows.
template <typename T>
Wide<T> scale_of(const T* row, int64_t columns, double eps) {
  const auto squares = gallery::sum_of_products<Wide<T>>(columns, row, row);
  return 1 / std::sqrt(squares / static_cast<Wide<T>>(columns) + static_cast<Wide<T>>(eps));
}

// How many rows are worth a thread.
inline int64_t rows_at_least(int64_t columns) { return (1 << 12) / columns + 1; }

// Writes a row of `out`.
template <typename T>
void scale_row(const T* x, const T* weight, int64_t columns, double eps, T* out) {
  const Wide<T> scale = scale_of(x, columns, eps);
  gallery::transform<Wide<T>>(
      columns, out, [scale](auto value, auto factor) { return value * scale * factor; }, x, weight);
}

// Writes the gradients of x, to which `more` is added unless it is null, and of weight.
template <typename T>
void scale_rows_backward(const opsmith::Context& ctx, int64_t rows, int64_t columns, double eps,
                         const T* grad, const T* x, const T* weight, const T* more, T* of_x,
                         T* of_weight) {
  using W = Wide<T>;
  if (columns == 0) return;
  const std::span<W> scales = ctx.scratch<W>(rows);
  ctx.parallel_for(0, rows, rows_at_least(columns), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * columns;
      const W scale = scales[row] = scale_of(x + at, columns, eps);
      const W inner = gallery::sum_of_products<W>(columns, grad + at, weight, x + at);
      const W slope = scale * scale * scale * (inner / static_cast<W>(columns));
      const auto gradient = [scale, slope](auto value, auto factor, auto out) {
        return scale * value * factor - slope * out;
      };
      if (more == nullptr) {
        gallery::transform<W>(columns, of_x + at, gradient, grad + at, weight, x + at);
      } else {
        gallery::transform<W>(
            columns, of_x + at,
            [gradient](auto value, auto factor, auto out, auto other) {
              return gradient(value, factor, out) + other;
            },
            grad + at, weight, x + at, more + at);
      }
    }
  });
  // Each thread has some columns, and goes over the rows in order.
  const int64_t share = (columns / ctx.num_threads() + 15) / 16 * 16;
  const int64_t width = std::clamp<int64_t>(share, 16, gallery::kTile);
  const int64_t parts = (columns + width - 1) / width;
  const int64_t grain = (1 << 14) / ((rows + 1) * width) + 1;
  ctx.parallel_for(0, parts, grain, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t first = part * width, count = std::min(columns - first, width);
      gallery::Tile<W> sums;
      std::fill_n(sums.items, count, W(0));
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t at = row * columns + first;
        const W scale = scales[row];
        gallery::transform<W>(
            count, sums.items,
            [scale](auto sum, auto value, auto in) { return sum + value * in * scale; }, sums.items,
            grad + at, x + at);
      }
      for (int64_t c = 0; c < count; ++c) of_weight[first + c] = static_cast<T>(sums[c]);
    }
  });
}

}  // namespace norms
