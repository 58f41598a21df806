#include "swiglu.h"

#include <opsmith/cuda.h>

#include <cstdint>

#include "../packs.cuh"
#include "swiglu_backward.h"

namespace {

using gallery::are_aligned, gallery::kPack, gallery::Pack, gallery::Sum;

constexpr int kThreads = 256;

// A thread takes kCount columns of one row.
template <typename T, int kCount>
__global__ void gate(const T* x, T* out, int64_t rows, int64_t columns) {
  using Elements = Pack<T, kCount>;
  const int64_t packs = columns / kCount;
  const int64_t item = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (item >= rows * packs) return;
  const T* from = x + item / packs * 2 * columns + item % packs * kCount;
  const Elements gates = *reinterpret_cast<const Elements*>(from);
  const Elements values = *reinterpret_cast<const Elements*>(from + columns);
  Elements result;
  for (int k = 0; k < kCount; ++k) {
    const auto gate = static_cast<Sum<T>>(gates.items[k]);
    const Sum<T> open = gate / (1 + opsmith::exp(-gate));
    result.items[k] = static_cast<T>(open * static_cast<Sum<T>>(values.items[k]));
  }
  *reinterpret_cast<Elements*>(out + item * kCount) = result;
}

template <typename T, int kCount>
__global__ void gate_backward(const T* grad, const T* x, T* out, int64_t rows, int64_t columns) {
  using Elements = Pack<T, kCount>;
  const int64_t packs = columns / kCount;
  const int64_t item = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (item >= rows * packs) return;
  const int64_t at = item / packs * 2 * columns + item % packs * kCount;
  const Elements gates = *reinterpret_cast<const Elements*>(x + at);
  const Elements values = *reinterpret_cast<const Elements*>(x + at + columns);
  const Elements grads = *reinterpret_cast<const Elements*>(grad + item * kCount);
  Elements of_gates, of_values;
  for (int k = 0; k < kCount; ++k) {
    const auto gate = static_cast<Sum<T>>(gates.items[k]);
    const auto slope = static_cast<Sum<T>>(grads.items[k]);
    const Sum<T> open = 1 / (1 + opsmith::exp(-gate));
    of_gates.items[k] = static_cast<T>(slope * static_cast<Sum<T>>(values.items[k]) *
                                       (open * (1 + gate * (1 - open))));
    of_values.items[k] = static_cast<T>(slope * gate * open);
  }
  *reinterpret_cast<Elements*>(out + at) = of_gates;
  *reinterpret_cast<Elements*>(out + at + columns) = of_values;
}

}  // namespace

template <typename T>
void swiglu(const opsmith::Context& ctx, const llm::swiglu_args<T>& a) {
  const int64_t count = a.out.numel();
  if (count == 0) return;
  // A view may begin anywhere, and rows may be of any length.
  const bool whole = a.C % kPack<T> == 0 && are_aligned(a.x.data(), a.out.data());
  opsmith::launch(ctx, whole ? gate<T, kPack<T>> : gate<T, 1>,
                  opsmith::blocks_for(whole ? count / kPack<T> : count, kThreads), kThreads, 0,
                  a.x.data(), a.out.data(), count / a.C, a.C);
}
OPSMITH_KERNEL(llm, swiglu, cuda, float, double, opsmith::half, opsmith::bfloat16)

template <typename T>
void swiglu_backward(const opsmith::Context& ctx, const llm::swiglu_backward_args<T>& a) {
  const int64_t count = a.grad.numel();
  if (count == 0) return;
  const bool whole = a.C % kPack<T> == 0 && are_aligned(a.grad.data(), a.x.data(), a.out.data());
  opsmith::launch(ctx, whole ? gate_backward<T, kPack<T>> : gate_backward<T, 1>,
                  opsmith::blocks_for(whole ? count / kPack<T> : count, kThreads), kThreads, 0,
                  a.grad.data(), a.x.data(), a.out.data(), count / a.C, a.C);
}
OPSMITH_KERNEL(llm, swiglu_backward, cuda, float, double, opsmith::half, opsmith::bfloat16)
