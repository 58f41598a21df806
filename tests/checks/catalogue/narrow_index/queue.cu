#include <opsmith/kernel.h>

#include <opsmith/cuda.h>

#include "queue.h"

// Few blocks take row after row from a queue.
__global__ void doubles(const float* x, float* out, int64_t rows, int64_t columns,
                        unsigned long long* next) {
  __shared__ int64_t row;
  for (;;) {
    if (threadIdx.x == 0) row = static_cast<int64_t>(atomicAdd(next, 1ull));
    __syncthreads();
    const int64_t own = row;
    __syncthreads();
    if (own >= rows || own >= 64) return;
    for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) {
      out[own * columns + c] = 2 * x[own * columns + c];
    }
  }
}

__global__ void rest(const float* x, float* out, int64_t count, int64_t columns) {
  const int64_t i = 64 * columns + int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) out[i] = 2 * x[i];
}

void queue(const opsmith::Context& ctx, const narrow::queue_args& a) {
  const int64_t count = a.N * a.C;
  if (count == 0) return;
  auto* next = ctx.scratch<unsigned long long>(1).data();
  cudaMemsetAsync(next, 0, sizeof *next, opsmith::cuda_stream(ctx));
  doubles<<<8, 64, 0, opsmith::cuda_stream(ctx)>>>(a.x.data(), a.out.data(), a.N, a.C, next);
  if (a.N > 64) {
    const auto blocks = static_cast<unsigned>((count - 64 * a.C + 255) / 256);
    rest<<<blocks, 256, 0, opsmith::cuda_stream(ctx)>>>(a.x.data(), a.out.data(), count, a.C);
  }
}
OPSMITH_KERNEL(narrow, queue, cuda)
