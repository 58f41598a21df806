#include <opsmith/kernel.h>

#include <opsmith/cuda.h>

#include "two_passes.h"

// The second kernel finds rows by what the first has written.
__global__ void numbers(int* order, int64_t rows) {
  const int64_t n = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (n < rows) order[n] = static_cast<int>(rows - 1 - n);
}

__global__ void doubles(const float* x, const int* order, float* out, int64_t rows,
                        int64_t columns) {
  const int64_t row = order[rows - 1 - blockIdx.x];
  for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) {
    out[row * columns + c] = 2 * x[row * columns + c];
  }
}

void two_passes(const opsmith::Context& ctx, const narrow::two_passes_args& a) {
  if (a.N * a.C == 0) return;
  int* order = ctx.scratch<int>(a.N).data();
  const auto blocks = static_cast<unsigned>((a.N + 255) / 256);
  numbers<<<blocks, 256, 0, opsmith::cuda_stream(ctx)>>>(order, a.N);
  doubles<<<static_cast<unsigned>(a.N), 256, 0, opsmith::cuda_stream(ctx)>>>(
      a.x.data(), order, a.out.data(), a.N, a.C);
}
OPSMITH_KERNEL(narrow, two_passes, cuda)
