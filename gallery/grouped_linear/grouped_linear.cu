#include "grouped_linear.h"

#include <opsmith/cuda.h>

#include <cstdint>

#include "../packs.cuh"
#include "grouped_linear_backward.h"

namespace {

using gallery::Sum;

constexpr int kTile = 32;   // rows and columns of a result that a block takes
constexpr int kDepth = 16;  // elements of each operand that lie in shared memory
constexpr int kSide = 16, kThreads = kSide * kSide;
constexpr int kEach = kTile / kSide;  // rows and columns of a thread

// Element (i, j) is data[i * row_stride + j * column_stride].
template <typename T>
struct Matrix {
  const T* data;
  int64_t row_stride, column_stride;

  __device__ Matrix at(int64_t i, int64_t j) const {
    return {data + i * row_stride + j * column_stride, row_stride, column_stride};
  }
};

int64_t tiles_of(int64_t size) { return (size + kTile - 1) / kTile; }

// Neighbouring threads read neighbouring elements, whichever way these lie.
template <typename T, int kRows, int kColumns>
__device__ void load(Matrix<T> from, int64_t rows, int64_t columns,
                     Sum<T> (&to)[kRows][kColumns + 1]) {
  const bool is_by_columns = from.row_stride < from.column_stride;
  for (int item = threadIdx.x; item < kRows * kColumns; item += kThreads) {
    const int i = is_by_columns ? item % kRows : item / kColumns;
    const int j = is_by_columns ? item / kRows : item % kColumns;
    const bool is_there = i < rows && j < columns;
    to[i][j] = is_there ? static_cast<Sum<T>>(*from.at(i, j).data) : Sum<T>(0);
  }
}

// Writes `rows` x `columns` elements, a tile at most, of the product of matrices with `depth`
// columns and `depth` rows. Rows of the result are `width` elements long.
template <typename T>
__device__ void multiply(Matrix<T> left, Matrix<T> right, int64_t rows, int64_t columns,
                         int64_t depth, T* to, int64_t width) {
  using S = Sum<T>;
  __shared__ S lefts[kTile][kDepth + 1], rights[kDepth][kTile + 1];
  const int row = threadIdx.x / kSide, column = threadIdx.x % kSide;
  S sums[kEach][kEach] = {};
  for (int64_t k = 0; k < depth; k += kDepth) {
    __syncthreads();  // what is there is used
    load<T, kTile, kDepth>(left.at(0, k), rows, depth - k, lefts);
    load<T, kDepth, kTile>(right.at(k, 0), depth - k, columns, rights);
    __syncthreads();
    for (int d = 0; d < kDepth; ++d) {
      for (int i = 0; i < kEach; ++i) {
        for (int j = 0; j < kEach; ++j) {
          sums[i][j] += lefts[row + i * kSide][d] * rights[d][column + j * kSide];
        }
      }
    }
  }
  for (int i = 0; i < kEach; ++i) {
    for (int j = 0; j < kEach; ++j) {
      const int own_row = row + i * kSide, own_column = column + j * kSide;
      if (own_row < rows && own_column < columns) {
        to[own_row * width + own_column] = static_cast<T>(sums[i][j]);
      }
    }
  }
}

__device__ int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// The tiles of rows of an expert are numbered from offsets[e] / kTile + e on: as many as the rows
// before it fill, and for each expert one that is not full. Its own are not more than the
// difference to the next, so that a block finds its rows by bisection.
template <typename T>
__global__ void multiply_rows(const T* left, int64_t depth, const int32_t* offsets, int64_t experts,
                              Matrix<T> weight, int64_t expert_stride, int64_t columns,
                              int64_t column_tiles, T* out) {
  const int64_t tile = blockIdx.x / column_tiles, column = blockIdx.x % column_tiles * kTile;
  int64_t expert = 0, behind = experts;  // the expert is in [expert, behind)
  while (behind - expert > 1) {
    const int64_t middle = (expert + behind) / 2;
    if (offsets[middle] / kTile + middle <= tile) {
      expert = middle;
    } else {
      behind = middle;
    }
  }
  const int64_t begin = offsets[expert], end = offsets[expert + 1];
  const int64_t row = begin + (tile - begin / kTile - expert) * kTile;
  if (row >= end) return;
  const Matrix<T> own = {weight.data + expert * expert_stride, weight.row_stride,
                         weight.column_stride};
  multiply(Matrix<T>{left + row * depth, depth, 1}, own.at(0, column), least(end - row, kTile),
           least(columns - column, kTile), depth, out + row * columns + column, columns);
}

// The gradient of an expert's matrix: the sum over its rows of x's times the gradient's.
template <typename T>
__global__ void multiply_columns(const T* x, int64_t height, const T* grad, int64_t width,
                                 const int32_t* offsets, int64_t row_tiles, int64_t column_tiles,
                                 T* out) {
  const int64_t column = blockIdx.x % column_tiles * kTile;
  const int64_t row = blockIdx.x / column_tiles % row_tiles * kTile;
  const int64_t expert = blockIdx.x / column_tiles / row_tiles;
  const int64_t begin = offsets[expert], end = offsets[expert + 1];
  multiply(Matrix<T>{x + begin * height + row, 1, height},
           Matrix<T>{grad + begin * width + column, width, 1}, least(height - row, kTile),
           least(width - column, kTile), end - begin,
           out + (expert * height + row) * width + column, width);
}

}  // namespace

template <typename T>
void grouped_linear(const opsmith::Context& ctx, const llm::grouped_linear_args<T>& a) {
  if (a.out.numel() == 0) return;
  const int64_t tiles = a.T / kTile + a.E, column_tiles = tiles_of(a.N);
  const Matrix<T> weight = {a.weight.data(), a.weight.stride(1), a.weight.stride(2)};
  opsmith::launch(ctx, multiply_rows<T>, opsmith::blocks_for(tiles * column_tiles, 1), kThreads, 0,
                  a.x.data(), a.K, a.offsets.data(), a.E, weight, a.weight.stride(0), a.N,
                  column_tiles, a.out.data());
}
OPSMITH_KERNEL(llm, grouped_linear, cuda, float, double, opsmith::half, opsmith::bfloat16)

template <typename T>
void grouped_linear_backward(const opsmith::Context& ctx,
                             const llm::grouped_linear_backward_args<T>& a) {
  if (a.out0.numel() > 0) {
    const int64_t tiles = a.T / kTile + a.E, column_tiles = tiles_of(a.K);
    const Matrix<T> transposed = {a.weight.data(), a.weight.stride(2), a.weight.stride(1)};
    opsmith::launch(ctx, multiply_rows<T>, opsmith::blocks_for(tiles * column_tiles, 1), kThreads,
                    0, a.grad.data(), a.N, a.offsets.data(), a.E, transposed, a.weight.stride(0),
                    a.K, column_tiles, a.out0.data());
  }
  if (a.out1.numel() > 0) {
    const int64_t row_tiles = tiles_of(a.K), column_tiles = tiles_of(a.N);
    opsmith::launch(ctx, multiply_columns<T>,
                    opsmith::blocks_for(a.E * row_tiles * column_tiles, 1), kThreads, 0, a.x.data(),
                    a.K, a.grad.data(), a.N, a.offsets.data(), row_tiles, column_tiles,
                    a.out1.data());
  }
}
OPSMITH_KERNEL(llm, grouped_linear_backward, cuda, float, double, opsmith::half, opsmith::bfloat16)
