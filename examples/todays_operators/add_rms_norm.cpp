#include "add_rms_norm.h"

#include <opsmith/kernel.h>

#include <cmath>
#include <span>

#include "add_rms_norm_backward.h"

template <typename T>
void add_rms_norm(const opsmith::Context& ctx, const today::add_rms_norm_args<T>& a) {
  ctx.parallel_for(0, a.N, 16, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const T* x = a.x.data() + n * a.C;
      T* residual = a.residual.data() + n * a.C;
      T* out = a.out.data() + n * a.C;
      double squares = 0;
      for (int64_t c = 0; c < a.C; ++c) {
        residual[c] += x[c];
        squares += static_cast<double>(residual[c]) * residual[c];
      }
      const T scale = 1 / std::sqrt(squares / a.C + a.eps);
      for (int64_t c = 0; c < a.C; ++c) out[c] = residual[c] * scale * a.weight[c];
    }
  });
}
OPSMITH_KERNEL(today, add_rms_norm, cpu, float, double)

template <typename T>
void add_rms_norm_backward(const opsmith::Context& ctx,
                           const today::add_rms_norm_backward_args<T>& a) {
  const std::span<double> scales = ctx.scratch<double>(a.N);
  ctx.parallel_for(0, a.N, 16, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const int64_t row = n * a.C;
      double squares = 0, inner = 0;
      for (int64_t c = 0; c < a.C; ++c) {
        const double value = a.residual[row + c];
        squares += value * value;
        inner += static_cast<double>(a.grad[row + c]) * a.weight[c] * value;
      }
      const double scale = scales[n] = 1 / std::sqrt(squares / a.C + a.eps);
      const double slope = scale * scale * scale * inner / a.C;
      for (int64_t c = 0; c < a.C; ++c) {
        const double scaled = static_cast<double>(a.grad[row + c]) * a.weight[c];
        a.out0[row + c] = a.grad_residual[row + c] + scale * scaled - slope * a.residual[row + c];
      }
    }
  });
  ctx.parallel_for(0, a.C, 64, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      double sum = 0;
      for (int64_t n = 0; n < a.N; ++n) {
        sum += static_cast<double>(a.grad[n * a.C + c]) * a.residual[n * a.C + c] * scales[n];
      }
      a.out1[c] = sum;
    }
  });
}
OPSMITH_KERNEL(today, add_rms_norm_backward, cpu, float, double)
