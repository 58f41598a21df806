#include <opsmith/kernel.h>

#include <opsmith/cuda.h>

#include "counted.h"

// What is read is decided by numbers whose range is compared on the device before.
__global__ void add_up(const float* x, const int32_t* rows, const int32_t* counts, float* out,
                       int64_t columns, int64_t most) {
  const int64_t n = blockIdx.x, c = int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  if (c >= columns) return;
  float sum = 0;
  for (int32_t t = 0; t < counts[n]; ++t) {
    sum += x[n * columns + c] * static_cast<float>(rows[n * most + t]);
  }
  out[n * columns + c] = sum;
}

void counted(const opsmith::Context& ctx, const narrow::counted_args& a) {
  if (a.N * a.C == 0) return;
  const dim3 grid(static_cast<unsigned>(a.N), static_cast<unsigned>((a.C + 127) / 128));
  opsmith::launch(ctx, add_up, grid, 128, 0, a.x.data(), a.rows.data(), a.counts.data(),
                  a.out.data(), a.C, a.M);
}
OPSMITH_KERNEL(narrow, counted, cuda)
