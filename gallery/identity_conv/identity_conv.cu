#include "identity_conv.h"

#include <opsmith/cuda.h>

template <typename T>
void identity_conv(const opsmith::Context& ctx, const tutorial::identity_conv_args<T>& a) {
  const size_t bytes = static_cast<size_t>(a.x.numel()) * sizeof(T);
  if (bytes == 0) return;
  opsmith::check_cuda(ctx,
                      cudaMemcpyAsync(a.out.data(), a.x.data(), bytes, cudaMemcpyDeviceToDevice,
                                      opsmith::cuda_stream(ctx)),
                      "cudaMemcpyAsync");
}
OPSMITH_KERNEL(tutorial, identity_conv, cuda, float, double, opsmith::half, opsmith::bfloat16)
