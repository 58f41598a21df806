#include "dropout.h"

#include <opsmith/cuda.h>
#include <opsmith/philox.h>

#include <cstdint>

#include "dropout_backward.h"

namespace {

template <typename T>
__global__ void keep(const T* x, const int64_t* rng, double p, T* out, int64_t count) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  // Seed and offset are read here, so that the host need not wait for them.
  if (i < count) {
    out[i] = x[i] * T(opsmith::Philox(rng).bernoulli(i, 1 - p)) * static_cast<T>(1 / (1 - p));
  }
}

template <typename T, typename Args>
void launch(const opsmith::Context& ctx, opsmith::Tensor<const T> x, const Args& a) {
  const int64_t count = x.numel(), threads = 256;
  if (count == 0) return;
  opsmith::launch(ctx, keep<T>, opsmith::blocks_for(count, threads), threads, 0, x.data(),
                  a.rng.data(), a.p, a.out.data(), count);
}

}  // namespace

template <typename T>
void dropout(const opsmith::Context& ctx, const today::dropout_args<T>& a) {
  launch<T>(ctx, a.x, a);
}
OPSMITH_KERNEL(today, dropout, cuda, float, double)

template <typename T>
void dropout_backward(const opsmith::Context& ctx, const today::dropout_backward_args<T>& a) {
  launch<T>(ctx, a.grad, a);
}
OPSMITH_KERNEL(today, dropout_backward, cuda, float, double)
