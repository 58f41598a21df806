#include <opsmith/cuda.h>

#include "graphs.h"

__global__ void doubled(const float* x, float* out, int64_t count) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < count) out[i] = 2 * x[i];
}

void graphs(const opsmith::Context& ctx, const cuda_graphs::graphs_args& a) {
  if (a.N == 0) return;
  const auto stream = opsmith::cuda_stream(ctx);
  void* memory = nullptr;
  if (a.how == 1) opsmith::check_cuda(ctx, cudaMalloc(&memory, 64), "malloc");
  opsmith::launch(ctx, doubled, static_cast<unsigned>((a.N + 127) / 128), 128, 0, a.x.data(),
                  a.out.data(), a.N);
  if (a.how == 2) opsmith::check_cuda(ctx, cudaStreamSynchronize(stream), "synchronise");
  if (memory != nullptr) opsmith::check_cuda(ctx, cudaFree(memory), "free");
}
OPSMITH_KERNEL(cuda_graphs, graphs, cuda)
