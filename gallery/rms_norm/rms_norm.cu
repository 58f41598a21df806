#include "rms_norm.h"

#include <opsmith/cuda.h>

#include <cstdint>

#include "../norm.cuh"
#include "rms_norm_backward.h"

template <typename T>
void rms_norm(const opsmith::Context& ctx, const norms::rms_norm_args<T>& a) {
  const int64_t rows = a.C == 0 ? 0 : a.x.numel() / a.C;
  T* nothing = nullptr;
  norms::launch_scale<T, false>(ctx, a.x.data(), nothing, a.weight.data(), rows, a.C, a.eps,
                                a.out.data());
}
OPSMITH_KERNEL(norms, rms_norm, cuda, float, double, opsmith::half, opsmith::bfloat16)

template <typename T>
void rms_norm_backward(const opsmith::Context& ctx, const norms::rms_norm_backward_args<T>& a) {
  const int64_t rows = a.C == 0 ? 0 : a.x.numel() / a.C;
  const T* nothing = nullptr;
  norms::launch_scale_backward(ctx, rows, a.C, a.eps, a.grad.data(), a.x.data(), a.weight.data(),
                               nothing, a.out0.data(), a.out1.data());
}
OPSMITH_KERNEL(norms, rms_norm_backward, cuda, float, double, opsmith::half, opsmith::bfloat16)
