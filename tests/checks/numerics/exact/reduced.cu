// Row sums through shuffles, shared memory and atomics, each also with a fault that no tolerance
// shows.
#include <cuda_fp16.h>
#include <opsmith/cuda.h>

#include "reduced.h"

template <typename T>
__global__ void add_up(const T* x, const T* w, T* out, int64_t columns, int how) {
  __shared__ T warps[4];
  extern __shared__ unsigned char memory[];
  T* scaled = reinterpret_cast<T*>(memory);
  const T* row = x + blockIdx.x * columns;
  T sum = 0;
  for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) {
    scaled[c] = row[c] * w[c];
    sum += scaled[c];
  }
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x % 32 == 0) atomicAdd(out + blockIdx.x, warps[threadIdx.x / 32]);
  if (how == 1 && threadIdx.x == 0 && columns > 1) atomicAdd(out + blockIdx.x, T(1e-9) * scaled[1]);
  if (how == 2 && threadIdx.x == 64) atomicAdd(out + blockIdx.x, max(warps[2], T(0)) * T(1e-9));
  if (how == 3 && threadIdx.x == 0) {
    const __half2 pair = __hmul2(__floats2half2_rn(1e-4f, 1e-4f), __float2half2_rn(1e-4f));
    atomicAdd(out + blockIdx.x, static_cast<T>(__low2float(pair)));
  }
}

template <typename T>
void reduced(const opsmith::Context& ctx, const exact_tests::reduced_args<T>& a) {
  opsmith::check_cuda(
      ctx, cudaMemsetAsync(a.out.data(), 0, a.N * sizeof(T), opsmith::cuda_stream(ctx)), "memset");
  if (a.N == 0) return;
  opsmith::launch(ctx, add_up<T>, static_cast<unsigned>(a.N), 128, a.C * sizeof(T), a.x.data(),
                  a.w.data(), a.out.data(), a.C, static_cast<int>(a.how));
}
OPSMITH_KERNEL(exact_tests, reduced, cuda, float, double)
