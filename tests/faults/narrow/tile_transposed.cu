#include "narrow.cuh"

constexpr int kTile = 16;

__global__ void transposes(const float* x, float* out, Index width, Index height) {
  __shared__ float tile[kTile][kTile + 1];
  Index column = blockIdx.x * kTile + threadIdx.x, row = blockIdx.y * kTile + threadIdx.y;
  if (column < width && row < height) tile[threadIdx.y][threadIdx.x] = x[row * width + column];
  __syncthreads();
  column = blockIdx.y * kTile + threadIdx.x;
  row = blockIdx.x * kTile + threadIdx.y;
  if (column < height && row < width) out[row * height + column] = tile[threadIdx.x][threadIdx.y];
}

KERNEL {
  if (a.N == 0 || a.C == 0) return;
  const auto tiles = [](int64_t size) { return static_cast<unsigned>((size + kTile - 1) / kTile); };
  transposes<<<dim3(tiles(a.C), tiles(a.N)), dim3(kTile, kTile), 0, opsmith::cuda_stream(ctx)>>>(
      a.x.data(), a.out.data(), a.C, a.N);
}
