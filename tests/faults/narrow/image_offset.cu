#include "narrow.cuh"

__global__ void doubles(const float* x, float* out, Index images, Index channels, Index height,
                        Index width) {
  const int64_t all = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const Index w = all % width, h = all / width % height, c = all / width / height % channels,
              n = all / width / height / channels;
  if (n >= images) return;
  const Index offset = ((n * channels + c) * height + h) * width + w;
  out[offset] = 2 * x[offset];
}

KERNEL {
  const int64_t count = a.N * a.C * a.H * a.W;
  if (count == 0) return;
  doubles<<<blocks_for(count), kThreads, 0, opsmith::cuda_stream(ctx)>>>(a.x.data(), a.out.data(),
                                                                         a.N, a.C, a.H, a.W);
}
