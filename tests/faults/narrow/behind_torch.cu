#include <torch/extension.h>

#include <ATen/cuda/CUDAContext.h>

#define FAULT_TEXT_(text) #text
#define FAULT_TEXT(text) FAULT_TEXT_(text)

#ifdef WRONG
using Index = int;
#else
using Index = int64_t;
#endif

__global__ void doubles(const float* x, float* out, Index count) {
  const Index i = Index(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) out[i] = 2 * x[i];
}

torch::Tensor twice(const torch::Tensor& x) {
  TORCH_CHECK(x.is_cuda() && x.is_contiguous(), "x must be a contiguous tensor on a GPU");
  torch::Tensor out = torch::empty_like(x);
  if (x.numel() == 0) return out;
  const unsigned blocks = (x.numel() + 255) / 256;
  doubles<<<blocks, 256, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(),
                                                                out.data_ptr<float>(), x.numel());
  return out;
}

TORCH_LIBRARY_IMPL(faults, CUDA, m) { m.impl(FAULT_TEXT(NAME), &twice); }
