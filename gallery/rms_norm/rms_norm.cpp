#include "rms_norm.h"

#include <opsmith/kernel.h>

#include <cstdint>

#include "../norm.h"
#include "rms_norm_backward.h"

template <typename T>
void rms_norm(const opsmith::Context& ctx, const norms::rms_norm_args<T>& a) {
  if (a.C == 0) return;
  const int64_t rows = a.x.numel() / a.C;
  ctx.parallel_for(0, rows, norms::rows_at_least(a.C), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * a.C;
      norms::scale_row(a.x.data() + at, a.weight.data(), a.C, a.eps, a.out.data() + at);
    }
  });
}
OPSMITH_KERNEL(norms, rms_norm, cpu, float, double, opsmith::half, opsmith::bfloat16)

template <typename T>
void rms_norm_backward(const opsmith::Context& ctx, const norms::rms_norm_backward_args<T>& a) {
  const int64_t rows = a.C == 0 ? 0 : a.x.numel() / a.C;
  const T* nothing = nullptr;
  norms::scale_rows_backward(ctx, rows, a.C, a.eps, a.grad.data(), a.x.data(), a.weight.data(),
                             nothing, a.out0.data(), a.out1.data());
}
OPSMITH_KERNEL(norms, rms_norm_backward, cpu, float, double, opsmith::half, opsmith::bfloat16)
