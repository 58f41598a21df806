// Rows scaled by their root mean square in CUDA, and the gradients: what rms_norm and add_rms_norm
// share. A block takes a row.
#pragma once

#include <opsmith/cuda.h>

#include <algorithm>
#include <cstdint>

#include "reductions.cuh"

namespace norms {

using gallery::kPack, gallery::Pack, gallery::Sum;

inline unsigned blocks_of_rows(int64_t rows) { return opsmith::blocks_for(rows, 1); }

template <typename S>
__device__ S scale_of(S squares, int64_t columns, S eps) {
  return 1 / opsmith::sqrt(gallery::block_sum(squares) / static_cast<S>(columns) + eps);
}

// Scales the rows of x; or those of `total`, to which x is added first. A thread takes the same
// columns in both of its loops.
template <typename T, int kCount, bool kAdds>
__global__ void scale(const T* x, T* total, const T* weight, int64_t rows, int64_t columns,
                      Sum<T> eps, T* out) {
  using Elements = Pack<T, kCount>;
  const int64_t step = int64_t{blockDim.x} * kCount;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t at = row * columns;
    const T* values = kAdds ? total + at : x + at;
    Sum<T> squares = 0;
    for (int64_t c = threadIdx.x * int64_t{kCount}; c < columns; c += step) {
      Elements elements = *reinterpret_cast<const Elements*>(values + c);
      if constexpr (kAdds) {
        const Elements more = *reinterpret_cast<const Elements*>(x + at + c);
        for (int k = 0; k < kCount; ++k) {
          elements.items[k] = static_cast<T>(static_cast<Sum<T>>(elements.items[k]) +
                                             static_cast<Sum<T>>(more.items[k]));
        }
        *reinterpret_cast<Elements*>(total + at + c) = elements;
      }
      for (int k = 0; k < kCount; ++k) {
        const auto value = static_cast<Sum<T>>(elements.items[k]);
        squares += value * value;
      }
    }
    const Sum<T> factor = scale_of(squares, columns, eps);
    for (int64_t c = threadIdx.x * int64_t{kCount}; c < columns; c += step) {
      const Elements elements = *reinterpret_cast<const Elements*>(values + c);
      const Elements weights = *reinterpret_cast<const Elements*>(weight + c);
      Elements result;
      for (int k = 0; k < kCount; ++k) {
        result.items[k] = static_cast<T>(static_cast<Sum<T>>(elements.items[k]) * factor *
                                         static_cast<Sum<T>>(weights.items[k]));
      }
      *reinterpret_cast<Elements*>(out + at + c) = result;
    }
  }
}

template <typename T, bool kAdds>
void launch_scale(const opsmith::Context& ctx, const T* x, T* total, const T* weight, int64_t rows,
                  int64_t columns, double eps, T* out) {
  if (rows * columns == 0) return;
  // A view may begin anywhere, and rows may be of any length.
  const bool whole =
      columns % kPack<T> == 0 && gallery::are_aligned(x, static_cast<const T*>(total), weight, out);
  opsmith::launch(ctx, whole ? scale<T, kPack<T>, kAdds> : scale<T, 1, kAdds>, blocks_of_rows(rows),
                  gallery::threads_for(whole ? columns / kPack<T> : columns), 0, x, total, weight,
                  rows, columns, static_cast<Sum<T>>(eps), out);
}

template <typename T>
__global__ void scale_backward(const T* grad, const T* x, const T* weight, const T* more,
                               int64_t rows, int64_t columns, Sum<T> eps, Sum<T>* scales, T* of_x) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t at = row * columns;
    Sum<T> squares = 0, inner = 0;
    for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) {
      const auto value = static_cast<Sum<T>>(x[at + c]);
      squares += value * value;
      inner += static_cast<Sum<T>>(grad[at + c]) * static_cast<Sum<T>>(weight[c]) * value;
    }
    const Sum<T> factor = scale_of(squares, columns, eps);
    const Sum<T> mean = gallery::block_sum(inner) / static_cast<Sum<T>>(columns);
    const Sum<T> slope = factor * factor * factor * mean;
    if (threadIdx.x == 0) scales[row] = factor;
    for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) {
      Sum<T> result = factor * static_cast<Sum<T>>(grad[at + c]) * static_cast<Sum<T>>(weight[c]) -
                      slope * static_cast<Sum<T>>(x[at + c]);
      if (more != nullptr) result += static_cast<Sum<T>>(more[at + c]);
      of_x[at + c] = static_cast<T>(result);
    }
  }
}

// What an element adds to the gradient of its column's weight.
template <typename T>
struct OfWeight {
  const T *grad, *x;
  const Sum<T>* scales;
  int64_t columns;

  __device__ Sum<T> operator()(int64_t row, int64_t c) const {
    const int64_t at = row * columns + c;
    return static_cast<Sum<T>>(grad[at]) * static_cast<Sum<T>>(x[at]) * scales[row];
  }
};

// Writes the gradients of x, to which `more` is added unless it is null, and of weight.
template <typename T>
void launch_scale_backward(const opsmith::Context& ctx, int64_t rows, int64_t columns, double eps,
                           const T* grad, const T* x, const T* weight, const T* more, T* of_x,
                           T* of_weight) {
  if (columns == 0) return;
  Sum<T>* scales = ctx.scratch<Sum<T>>(rows).data();
  if (rows > 0) {
    opsmith::launch(ctx, scale_backward<T>, blocks_of_rows(rows), gallery::threads_for(columns), 0,
                    grad, x, weight, more, rows, columns, static_cast<Sum<T>>(eps), scales, of_x);
  }
  gallery::sum_rows<Sum<T>>(ctx, OfWeight<T>{grad, x, scales, columns}, rows, columns, of_weight);
}

}  // namespace norms
