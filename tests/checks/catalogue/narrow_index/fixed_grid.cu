#include <opsmith/kernel.h>

#include <opsmith/cuda.h>

#include "fixed_grid.h"

// As many blocks as a device has room for, and a loop with 32 bits for the block alone.
__global__ void doubles(const float* x, float* out, int64_t count) {
  const unsigned stride = blockDim.x * gridDim.x;
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
    out[i] = 2 * x[i];
  }
}

void fixed_grid(const opsmith::Context& ctx, const narrow::fixed_grid_args& a) {
  const int64_t count = a.N * a.C;
  if (count == 0) return;
  doubles<<<1024, 256, 0, opsmith::cuda_stream(ctx)>>>(a.x.data(), a.out.data(), count);
}
OPSMITH_KERNEL(narrow, fixed_grid, cuda)
