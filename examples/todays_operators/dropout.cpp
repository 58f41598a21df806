#include <opsmith/kernel.h>
#include <opsmith/philox.h>

#include "dropout.h"
#include "dropout_backward.h"

template <typename T>
static void keep(const opsmith::Context& ctx, opsmith::Tensor<const T> x, opsmith::Philox random,
                 double p, opsmith::Tensor<T> out) {
  const T scale = static_cast<T>(1 / (1 - p));
  ctx.parallel_for(0, x.numel(), 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      out[i] = x[i] * T(random.bernoulli(i, 1 - p)) * scale;
    }
  });
}

template <typename T>
void dropout(const opsmith::Context& ctx, const today::dropout_args<T>& a) {
  keep<T>(ctx, a.x, opsmith::Philox(a.rng.data()), a.p, a.out);
}
OPSMITH_KERNEL(today, dropout, cpu, float, double)

template <typename T>
void dropout_backward(const opsmith::Context& ctx, const today::dropout_backward_args<T>& a) {
  keep<T>(ctx, a.grad, opsmith::Philox(a.rng.data()), a.p, a.out);
}
OPSMITH_KERNEL(today, dropout_backward, cpu, float, double)
