// Blocks of matrix products whose operands have any strides: what kernels share that multiply parts
// of tensors. No BLAS is called, so that they run in any runtime.
#pragma once

#include <opsmith/kernel.h>

#include <algorithm>
#include <cstdint>
#include <span>

#include "gemm.h"
#include "vectors.h"

namespace gallery {

// Element (i, j) is data[i * row_stride + j * column_stride].
template <typename T>
struct Matrix {
  const T* data;
  int64_t row_stride, column_stride;

  Matrix at(int64_t i, int64_t j) const {
    return {data + i * row_stride + j * column_stride, row_stride, column_stride};
  }
  Matrix transposed() const { return {data, column_stride, row_stride}; }
};

// The largest block of results.
template <typename S>
inline constexpr int64_t kBlockRows = 16 * gemm::Tile<S>::rows;
inline constexpr int64_t kBlockColumns = 256;

// Multiplies blocks, with memory that serves one block after another: for one thread.
template <typename S>
class BlockProduct {
 public:
  explicit BlockProduct(const opsmith::Context& ctx)
      : left_(ctx.scratch<S>(kBlockRows<S> * kDepth)),
        right_(ctx.scratch<S>(kDepth * Tile::width)) {}

  // to[i * kBlockColumns + j] = the sum over k < count of left(i, k) right(k, j), for i < height
  // and j < width, in an order that `count` alone decides. Anything may be written behind them, in
  // `to` of kBlockRows x kBlockColumns.
  template <typename A, typename B>
  void operator()(Matrix<A> left, Matrix<B> right, int64_t height, int64_t width, int64_t count,
                  S* to) const {
    for (int64_t k = 0; k == 0 || k < count; k += kDepth) {
      const int64_t some = std::min(count - k, kDepth);
      const Matrix<A> a = left.at(0, k);
      pack(a.data, a.row_stride, a.column_stride, height, some, Tile::rows, left_.data());
      for (int64_t j = 0; j < width; j += Tile::width) {
        const Matrix<B> b = right.at(k, j);
        const int64_t panel = std::min<int64_t>(width - j, Tile::width);
        pack(b.data, b.column_stride, b.row_stride, panel, some, Tile::width, right_.data());
        for (int64_t i = 0; i < height; i += Tile::rows) {
          gemm::multiply<S, Tile::vectors, 1, Tile::rows>(some, left_.data() + i * some,
                                                          right_.data(), to + i * kBlockColumns + j,
                                                          kBlockColumns, k > 0);
        }
      }
    }
  }

 private:
  using Tile = gemm::Tile<S>;
  static constexpr int64_t kDepth = 256;  // elements of both operands that are multiplied at a time
  static_assert(kBlockColumns % Tile::width == 0);

  // `count` items of `some` elements, `width` items side by side, zeros behind the last.
  template <typename T>
  static void pack(const T* from, int64_t item_stride, int64_t stride, int64_t count, int64_t some,
                   int64_t width, S* to) {
    for (int64_t first = 0; first < count; first += width, to += some * width) {
      const int64_t items = std::min(count - first, width);
      const T* own = from + first * item_stride;
      if (items < width) std::fill_n(to, some * width, S(0));
      if (item_stride == 1) {
        for (int64_t k = 0; k < some; ++k) widen(own + k * stride, items, to + k * width);
        continue;
      }
      gallery::Tile<S> row;
      static_assert(kDepth <= kTile);
      for (int64_t i = 0; i < items; ++i) {
        const T* item = own + i * item_stride;
        if (stride == 1) {
          widen(item, some, row.items);
        } else {
          for (int64_t k = 0; k < some; ++k) row[k] = static_cast<S>(item[k * stride]);
        }
        for (int64_t k = 0; k < some; ++k) to[k * width + i] = row[k];
      }
    }
  }

  std::span<S> left_, right_;
};

}  // namespace gallery
