// Faults in launches, copies, and the host code around them; see faults.cu for the form.
#include "launches.h"

#include <opsmith/cuda.h>

#include <cstdint>

namespace {

constexpr int kThreads = 96;

__device__ float device_table[8];

__global__ void take(const float* x, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i];
}
__global__ void __launch_bounds__(kThreads) take_bounded(const float* x, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i];
}
__global__ void take_rows(const float* x, float* out, int n) {
  const int i = blockIdx.y * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i];
}
__global__ void take_shared(const float* x, float* out, int n) {
  __shared__ float some[4096];  // FAULT static_and_dynamic_shared
  extern __shared__ float more[];
  const int i = blockIdx.x * kThreads + threadIdx.x;
  some[threadIdx.x] = i < n ? x[i] : 0.0f;
  more[threadIdx.x] = some[threadIdx.x];
  __syncthreads();
  if (i < n) out[i] = more[threadIdx.x];
}
__global__ void take_much(const float* x, float* out, int n) {
  extern __shared__ float more[];
  const int i = blockIdx.x * kThreads + threadIdx.x;
  more[threadIdx.x] = i < n ? x[i] : 0.0f;
  __syncthreads();
  if (i < n) out[i] = more[threadIdx.x];
}

}  // namespace

void launches(const opsmith::Context& ctx, const cuda_faults::launches_args& a) {
  const int n = static_cast<int>(a.N);
  const cudaStream_t stream = opsmith::cuda_stream(ctx);
  const unsigned blocks = opsmith::blocks_for(n, kThreads);
  const float* x = a.x.data();
  float* out = a.out.data();
  if (a.fault == "default_stream") {
    take<<<blocks, kThreads, 0, a.wrong ? nullptr : stream>>>(x, out, n);  // FAULT
  }
  if (a.fault == "no_stream") {
    if (a.wrong) {
      take<<<blocks, kThreads>>>(x, out, n);  // FAULT
    } else {
      take<<<blocks, kThreads, 0, stream>>>(x, out, n);
    }
  }
  if (a.fault == "copy_on_the_default_stream") {
    const size_t all = n * sizeof(float);
    if (a.wrong) {
      cudaMemcpyAsync(out, x, all, cudaMemcpyDeviceToDevice);  // FAULT
    } else {
      cudaMemcpyAsync(out, x, all, cudaMemcpyDeviceToDevice, stream);
    }
  }
  if (a.fault == "set_on_the_default_stream") {
    cudaMemsetAsync(out, 0, n * sizeof(float), a.wrong ? nullptr : stream);  // FAULT
    take<<<blocks, kThreads, 0, stream>>>(x, out, n);
  }
  if (a.fault == "more_threads_than_bounds") {
    take_bounded<<<blocks, a.wrong ? 128 : kThreads, 0, stream>>>(x, out, n);  // FAULT
  }
  if (a.fault == "rows_along_y") {
    take_rows<<<dim3(1, a.wrong ? 65536 : 200), 1, 0, stream>>>(x, out, n);  // FAULT
  }
  if (a.fault == "static_and_dynamic_shared") {
    take_shared<<<blocks, kThreads, a.wrong ? 40000 : 4000, stream>>>(x, out, n);
  }
  if (a.fault == "attribute_of_another_kernel") {
    const auto kernel = a.wrong ? take_shared : take_much;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536);
    take_much<<<blocks, kThreads, 65536, stream>>>(x, out, n);  // FAULT
  }
  if (a.fault == "more_than_a_device_has") {
    const int most = (a.wrong ? 228 : 227) << 10;
    cudaFuncSetAttribute(take_much, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
    take_much<<<blocks, kThreads, most, stream>>>(x, out, n);  // FAULT
  }
  if (a.fault == "copy_past_a_variable") {
    const float ones[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    const size_t count = a.wrong ? 9 : 8;
    cudaMemcpyToSymbolAsync(device_table, ones, count * sizeof(float), 0,  // FAULT
                            cudaMemcpyHostToDevice, stream);
    take<<<blocks, kThreads, 0, stream>>>(x, out, n);
  }
}
OPSMITH_KERNEL(cuda_faults, launches, cuda)
