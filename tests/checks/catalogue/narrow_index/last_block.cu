#include <opsmith/kernel.h>

#include <opsmith/cuda.h>

#include "last_block.h"

// The block that ends last counts what all blocks have done.
__global__ void doubles(const float* x, float* out, int64_t count, unsigned* done) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) out[i] = 2 * x[i];
  __threadfence();
  __shared__ bool last;
  if (threadIdx.x == 0) last = atomicAdd(done, 1u) == gridDim.x - 1;
  __syncthreads();
  if (last && threadIdx.x == 0) *done = 0;
}

void last_block(const opsmith::Context& ctx, const narrow::last_block_args& a) {
  const int64_t count = a.N * a.C;
  if (count == 0) return;
  unsigned* done = ctx.scratch<unsigned>(1).data();
  cudaMemsetAsync(done, 0, sizeof(unsigned), opsmith::cuda_stream(ctx));
  doubles<<<static_cast<unsigned>((count + 255) / 256), 256, 0, opsmith::cuda_stream(ctx)>>>(
      a.x.data(), a.out.data(), count, done);
}
OPSMITH_KERNEL(narrow, last_block, cuda)
