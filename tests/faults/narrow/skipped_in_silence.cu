#include "narrow.cuh"

// A negative index becomes more than any size, where it is compared with one without a sign.
__global__ void doubles(const float* x, float* out, size_t count) {
  const Index i = Index(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) out[i] = 2 * x[i];
}

KERNEL {
  const int64_t count = a.N * a.C;
  if (count == 0) return;
  doubles<<<blocks_for(count), kThreads, 0, opsmith::cuda_stream(ctx)>>>(a.x.data(), a.out.data(),
                                                                         count);
}
