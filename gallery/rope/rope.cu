#include "rope.h"

#include <opsmith/cuda.h>

#include <cstdint>

#include "../packs.cuh"
#include "rope_backward.h"

namespace {

using gallery::Sum;

constexpr int kThreads = 256;

// A thread takes one pair: elements `first` and `first` + `step` of its head.
template <typename T>
__global__ void rotate(const T* x, const int64_t* positions, const T* cosines, const T* sines,
                       T* out, int64_t count, int64_t heads, int64_t pairs, bool interleaved,
                       Sum<T> direction) {
  const int64_t item = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (item >= count) return;
  const int64_t row = item / pairs, pair = item % pairs;
  const int64_t angle = positions[row / heads] * pairs + pair;
  const auto cos = static_cast<Sum<T>>(cosines[angle]);
  const Sum<T> sin = direction * static_cast<Sum<T>>(sines[angle]);
  const int64_t first = row * 2 * pairs + (interleaved ? 2 * pair : pair);
  const int64_t second = first + (interleaved ? 1 : pairs);
  const auto left = static_cast<Sum<T>>(x[first]), right = static_cast<Sum<T>>(x[second]);
  out[first] = static_cast<T>(left * cos - right * sin);
  out[second] = static_cast<T>(right * cos + left * sin);
}

template <typename T, typename Args>
void launch(const opsmith::Context& ctx, const Args& a, const T* x, Sum<T> direction) {
  const int64_t count = a.out.numel() / 2;
  if (count == 0) return;
  opsmith::launch(ctx, rotate<T>, opsmith::blocks_for(count, kThreads), kThreads, 0, x,
                  a.positions.data(), a.cos.data(), a.sin.data(), a.out.data(), count, a.H, a.D,
                  a.interleaved, direction);
}

}  // namespace

template <typename T>
void rope(const opsmith::Context& ctx, const llm::rope_args<T>& a) {
  launch<T>(ctx, a, a.x.data(), Sum<T>(1));
}
OPSMITH_KERNEL(llm, rope, cuda, float, double, opsmith::half, opsmith::bfloat16)

template <typename T>
void rope_backward(const opsmith::Context& ctx, const llm::rope_backward_args<T>& a) {
  launch<T>(ctx, a, a.grad.data(), Sum<T>(-1));
}
OPSMITH_KERNEL(llm, rope_backward, cuda, float, double, opsmith::half, opsmith::bfloat16)
