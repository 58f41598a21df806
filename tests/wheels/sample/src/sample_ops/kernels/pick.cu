#include <opsmith/cuda.h>
#include <opsmith/kernel.h>

#include "pick.h"

__global__ void take(const float* x, const int64_t* rows, float* out, int64_t count) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < count) out[i] = x[rows[i]];
}

void pick(const opsmith::Context& ctx, const sample::pick_args& a) {
  if (a.P == 0) return;
  opsmith::launch(ctx, take, opsmith::blocks_for(a.P, 128), 128, 0, a.x.data(), a.rows.data(),
                  a.out.data(), a.P);
}
OPSMITH_KERNEL(sample, pick, cuda)
