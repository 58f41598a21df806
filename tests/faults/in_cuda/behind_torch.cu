// Operators written as PyTorch extensions are, with one fault each in host code or kernel, beside
// the same without it: `wrong` decides. The comment FAULT marks the line that has to be named.
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime.h>
#include <torch/extension.h>

#include <string>

namespace {

constexpr int kThreads = 64;

template <typename scalar_t>
__global__ void copy_kernel(const scalar_t* __restrict__ x, scalar_t* __restrict__ out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i];  // FAULT freed_workspace host_tensor
}

template <typename scalar_t>
__global__ void reverse_kernel(const scalar_t* x, scalar_t* out, int n, bool wrong) {
  __shared__ scalar_t tile[kThreads];
  const int first = blockIdx.x * kThreads, i = first + threadIdx.x;
  const int count = min(kThreads, n - first);
  if (i < n) tile[threadIdx.x] = x[i];
  if (!wrong) __syncthreads();
  if (i < n) {
    const scalar_t other = tile[count - 1 - threadIdx.x];  // FAULT no_barrier
    out[i] = other;
  }
}

template <typename scalar_t>
__global__ void padded_kernel(const scalar_t* x, scalar_t* padded, int n, int size) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < size) padded[i] = i < n ? x[i] : scalar_t(0);  // FAULT workspace_too_small
}

template <typename scalar_t>
__global__ void sum_kernel(const scalar_t* x, scalar_t* sum, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(sum, x[i]);  // FAULT sum_not_cleared
}

template <typename scalar_t>
__global__ void turn_kernel(const at::PackedTensorAccessor32<scalar_t, 2, at::RestrictPtrTraits> x,
                            at::PackedTensorAccessor32<scalar_t, 2, at::RestrictPtrTraits> out,
                            bool wrong) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= x.size(0) * x.size(1)) return;
  const int row = i / x.size(1), column = i % x.size(1);
  const scalar_t value = wrong ? x[column][row] : x[row][column];  // FAULT rows_for_columns
  out[row][column] = value;
}

template <typename scalar_t>
__global__ void clamp_kernel(scalar_t* x, scalar_t* out, int n, bool wrong) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  if (wrong) x[i] = x[i] + 1;  // FAULT argument_written
  out[i] = x[i];
}

at::Tensor behind_torch(const at::Tensor& x, const std::string fault, bool wrong) {
  TORCH_CHECK(x.is_cuda() && x.device().type() == at::kCUDA, "x must be a CUDA tensor");
  TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
  const c10::cuda::OptionalCUDAGuard guard(device_of(x));
  const int n = static_cast<int>(x.numel());
  const int blocks = (n + kThreads - 1) / kThreads;
  cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  at::Tensor out = at::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "behind_torch", [&] {
    const scalar_t* from = x.const_data_ptr<scalar_t>();
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    if (fault == "no_barrier") {
      reverse_kernel<scalar_t><<<blocks, kThreads, 0, stream>>>(from, to, n, wrong);
    }
    if (fault == "default_stream") {
      if (wrong) {
        copy_kernel<scalar_t><<<blocks, kThreads>>>(from, to, n);  // FAULT default_stream
      } else {
        copy_kernel<scalar_t><<<blocks, kThreads, 0, stream>>>(from, to, n);
      }
    }
    if (fault == "nothing_to_do") {
      if (!wrong && n == 0) return;
      copy_kernel<<<blocks, kThreads, 0, stream>>>(from, to, n);  // FAULT nothing_to_do
    }
    if (fault == "workspace_too_small") {
      const int size = blocks * kThreads;
      const at::Tensor padded = at::empty({wrong ? n : size}, x.options());
      padded_kernel<<<blocks, kThreads, 0, stream>>>(from, padded.data_ptr<scalar_t>(), n, size);
      out = padded.narrow(0, 0, n).clone();
    }
    if (fault == "sum_not_cleared") {
      at::Tensor sum = wrong ? at::empty({1}, x.options()) : at::zeros({1}, x.options());
      sum_kernel<<<blocks, kThreads, 0, stream>>>(from, sum.data_ptr<scalar_t>(), n);
      out = sum.expand({n}).contiguous();
    }
    if (fault == "freed_workspace") {
      at::Tensor workspace = x + 1;
      const scalar_t* kept = workspace.data_ptr<scalar_t>();
      if (wrong) workspace = at::Tensor();
      copy_kernel<<<blocks, kThreads, 0, stream>>>(kept, to, n);
    }
    if (fault == "host_tensor") {
      const at::Tensor table =
          at::ones({n}, wrong ? at::TensorOptions().dtype(x.dtype()) : x.options());
      copy_kernel<<<blocks, kThreads, 0, stream>>>(table.data_ptr<scalar_t>(), to, n);
    }
    if (fault == "read_by_host") {
      copy_kernel<<<blocks, kThreads, 0, stream>>>(from, to, n);
      const scalar_t first = wrong ? from[0] : x[0].item<scalar_t>();  // FAULT read_by_host
      TORCH_CHECK(first >= 0);
    }
    if (fault == "strides_ignored") {
      at::Tensor turned = x.view({2, n / 2}).t();
      if (!wrong) turned = turned.contiguous();
      copy_kernel<<<blocks, kThreads, 0, stream>>>(turned.data_ptr<scalar_t>(), to, n);
    }
    if (fault == "rows_for_columns") {
      const at::Tensor rows = x.view({2, n / 2});
      at::Tensor result = at::empty_like(rows);
      turn_kernel<scalar_t><<<blocks, kThreads, 0, stream>>>(
          rows.packed_accessor32<scalar_t, 2, at::RestrictPtrTraits>(),
          result.packed_accessor32<scalar_t, 2, at::RestrictPtrTraits>(), wrong);
      out = result.flatten();
    }
    if (fault == "argument_written") {
      clamp_kernel<<<blocks, kThreads, 0, stream>>>(x.data_ptr<scalar_t>(), to, n, wrong);
    }
    if (fault == "devices_mixed") {
      const at::Tensor ones =
          at::ones({n}, wrong ? at::TensorOptions().dtype(x.dtype()) : x.options());
      out = x + ones;
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
  return out;
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("behind_torch", &behind_torch, "one fault", py::arg("x"), py::arg("fault"),
        py::arg("wrong"));
}
