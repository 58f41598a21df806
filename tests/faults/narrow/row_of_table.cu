#include "narrow.cuh"

__global__ void gathers(const float* table, const int32_t* rows, float* out, Index columns) {
  const auto row = rows[blockIdx.x] * columns;
  for (Index c = threadIdx.x; c < columns; c += kThreads) {
    out[blockIdx.x * columns + c] = table[row + c];
  }
}

KERNEL {
  if (a.P == 0) return;
  gathers<<<static_cast<unsigned>(a.P), kThreads, 0, opsmith::cuda_stream(ctx)>>>(
      a.table.data(), a.rows.data(), a.out.data(), a.C);
}
