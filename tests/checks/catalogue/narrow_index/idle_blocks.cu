#include <opsmith/kernel.h>

#include <opsmith/cuda.h>

#include "idle_blocks.h"

// The grid is a power of two: its last blocks have nothing to do.
__global__ void doubles(const float* x, float* out, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  out[i] = 2 * x[i];
}

void idle_blocks(const opsmith::Context& ctx, const narrow::idle_blocks_args& a) {
  const int64_t count = a.N * a.C;
  if (count == 0) return;
  unsigned blocks = 1;
  while (blocks * int64_t{256} < count) blocks *= 2;
  doubles<<<blocks, 256, 0, opsmith::cuda_stream(ctx)>>>(a.x.data(), a.out.data(), count);
}
OPSMITH_KERNEL(narrow, idle_blocks, cuda)
