#include "segment_reduce.h"

#include <opsmith/cuda.h>

#include <cstdint>

#include "../packs.cuh"
#include "segment_reduce_backward.h"

namespace {

using gallery::Sum;

constexpr int kThreads = 256;

// A thread takes one column of one segment, so that neighbours read neighbouring elements.
template <typename T>
__global__ void reduce(const T* x, const int64_t* offsets, bool is_max, bool is_mean,
                       int64_t segments, int64_t columns, T* out) {
  const int64_t item = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (item >= segments * columns) return;
  const int64_t begin = offsets[item / columns], end = offsets[item / columns + 1];
  const int64_t column = item % columns;
  Sum<T> sum = 0;
  for (int64_t row = begin; row < end; ++row) {
    const auto value = static_cast<Sum<T>>(x[row * columns + column]);
    if (is_max) {
      sum = row == begin || sum < value ? value : sum;
    } else {
      sum += value;
    }
  }
  if (is_mean && end > begin) sum /= static_cast<Sum<T>>(end - begin);
  out[item] = static_cast<T>(sum);
}

template <typename T>
__global__ void reduce_backward(const T* grad, const T* x, const T* result, const int64_t* offsets,
                                bool is_max, bool is_mean, int64_t segments, int64_t columns,
                                T* out) {
  const int64_t item = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (item >= segments * columns) return;
  const int64_t begin = offsets[item / columns], end = offsets[item / columns + 1];
  const int64_t column = item % columns;
  const auto largest = static_cast<Sum<T>>(result[item]);
  const auto is_largest = [=](int64_t row) {
    return static_cast<Sum<T>>(x[row * columns + column]) == largest;
  };
  int64_t shares = is_mean ? end - begin : 1;
  if (is_max) {
    shares = 0;
    for (int64_t row = begin; row < end; ++row) shares += is_largest(row) ? 1 : 0;
  }
  if (shares < 1) shares = 1;
  const Sum<T> share = static_cast<Sum<T>>(grad[item]) / static_cast<Sum<T>>(shares);
  for (int64_t row = begin; row < end; ++row) {
    out[row * columns + column] = !is_max || is_largest(row) ? static_cast<T>(share) : T(0);
  }
}

}  // namespace

template <typename T>
void segment_reduce(const opsmith::Context& ctx, const graphs::segment_reduce_args<T>& a) {
  using Reduce = graphs::segment_reduce_reduce;
  const int64_t count = a.S * a.C;
  if (count == 0) return;
  opsmith::launch(ctx, reduce<T>, opsmith::blocks_for(count, kThreads), kThreads, 0, a.x.data(),
                  a.offsets.data(), a.reduce == Reduce::max, a.reduce == Reduce::mean, a.S, a.C,
                  a.out.data());
}
OPSMITH_KERNEL(graphs, segment_reduce, cuda, float, double, opsmith::half, opsmith::bfloat16)

template <typename T>
void segment_reduce_backward(const opsmith::Context& ctx,
                             const graphs::segment_reduce_backward_args<T>& a) {
  using Reduce = graphs::segment_reduce_backward_reduce;
  const int64_t count = a.S * a.C;
  if (count == 0) return;
  opsmith::launch(ctx, reduce_backward<T>, opsmith::blocks_for(count, kThreads), kThreads, 0,
                  a.grad.data(), a.x.data(), a.result.data(), a.offsets.data(),
                  a.reduce == Reduce::max, a.reduce == Reduce::mean, a.S, a.C, a.out.data());
}
OPSMITH_KERNEL(graphs, segment_reduce_backward, cuda, float, double, opsmith::half,
               opsmith::bfloat16)
