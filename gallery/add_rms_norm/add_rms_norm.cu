#include "add_rms_norm.h"

#include <opsmith/cuda.h>

#include <cstdint>

#include "../norm.cuh"
#include "add_rms_norm_backward.h"

template <typename T>
void add_rms_norm(const opsmith::Context& ctx, const norms::add_rms_norm_args<T>& a) {
  const int64_t rows = a.C == 0 ? 0 : a.x.numel() / a.C;
  norms::launch_scale<T, true>(ctx, a.x.data(), a.residual.data(), a.weight.data(), rows, a.C,
                               a.eps, a.out.data());
}
OPSMITH_KERNEL(norms, add_rms_norm, cuda, float, double, opsmith::half, opsmith::bfloat16)

template <typename T>
void add_rms_norm_backward(const opsmith::Context& ctx,
                           const norms::add_rms_norm_backward_args<T>& a) {
  const int64_t rows = a.C == 0 ? 0 : a.residual.numel() / a.C;
  norms::launch_scale_backward(ctx, rows, a.C, a.eps, a.grad.data(), a.residual.data(),
                               a.weight.data(), a.grad_residual.data(), a.out0.data(),
                               a.out1.data());
}
OPSMITH_KERNEL(norms, add_rms_norm_backward, cuda, float, double, opsmith::half, opsmith::bfloat16)
