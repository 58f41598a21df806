#include "narrow.cuh"

#define KERNEL_LOOP(i, count)                                               \
  for (Index i = Index(blockIdx.x) * blockDim.x + threadIdx.x; i < (count); \
       i += Index(blockDim.x) * gridDim.x)

__global__ void doubles(const float* x, float* out, int64_t count) {
  KERNEL_LOOP(i, count) out[i] = 2 * x[i];
}

KERNEL {
  const int64_t count = a.N * a.C;
  if (count == 0) return;
  const unsigned blocks = blocks_for(count) < 65535 ? blocks_for(count) : 65535;
  doubles<<<blocks, kThreads, 0, opsmith::cuda_stream(ctx)>>>(a.x.data(), a.out.data(), count);
}
