#include "add_rms_norm.h"

#include <opsmith/kernel.h>

#include <cstdint>

#include "../norm.h"
#include "add_rms_norm_backward.h"

template <typename T>
void add_rms_norm(const opsmith::Context& ctx, const norms::add_rms_norm_args<T>& a) {
  if (a.C == 0) return;
  const int64_t rows = a.x.numel() / a.C;
  ctx.parallel_for(0, rows, norms::rows_at_least(a.C), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* x = a.x.data() + row * a.C;
      T* residual = a.residual.data() + row * a.C;
      gallery::transform<gallery::Sum<T>>(
          a.C, residual, [](auto old, auto more) { return old + more; }, residual, x);
      norms::scale_row<T>(residual, a.weight.data(), a.C, a.eps, a.out.data() + row * a.C);
    }
  });
}
OPSMITH_KERNEL(norms, add_rms_norm, cpu, float, double, opsmith::half, opsmith::bfloat16)

template <typename T>
void add_rms_norm_backward(const opsmith::Context& ctx,
                           const norms::add_rms_norm_backward_args<T>& a) {
  const int64_t rows = a.C == 0 ? 0 : a.residual.numel() / a.C;
  norms::scale_rows_backward(ctx, rows, a.C, a.eps, a.grad.data(), a.residual.data(),
                             a.weight.data(), a.grad_residual.data(), a.out0.data(), a.out1.data());
}
OPSMITH_KERNEL(norms, add_rms_norm_backward, cpu, float, double, opsmith::half, opsmith::bfloat16)
