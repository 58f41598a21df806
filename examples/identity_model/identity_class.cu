#include "IdentityConvClass_forward.h"

#include <opsmith/kernel.h>

#include <cuda_runtime.h>
#include <cstdint>

template <typename T>
void IdentityConvClass_forward(const opsmith::Context& ctx,
                               const my_ops::IdentityConvClass_forward_args<T>& a) {
  const size_t bytes = static_cast<size_t>(a.x.numel()) * sizeof(T);
  const cudaError_t error =
      cudaMemcpyAsync(a.out.data(), a.x.data(), bytes, cudaMemcpyDeviceToDevice,
                      static_cast<cudaStream_t>(ctx.stream()));
  if (error != cudaSuccess) ctx.fail(cudaGetErrorString(error));
}
OPSMITH_KERNEL(my_ops, IdentityConvClass_forward, cuda, float, double, opsmith::half,
               opsmith::bfloat16)
