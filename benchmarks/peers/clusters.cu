// Faults in clusters: each of two blocks reads the shared memory of the other.
// The form is that of tests/faults/in_cuda/faults.cu.
#include "clusters.h"

#include <opsmith/cuda.h>

#include <cstdint>

namespace {

constexpr int kThreads = 64;

__device__ unsigned shared_address(const void* data) {
  return static_cast<unsigned>(__cvta_generic_to_shared(data));
}

__device__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
__device__ float of_the_other_block(const float* own) {
  unsigned rank, address;
  float value;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(address)
               : "r"(shared_address(own)), "r"(rank ^ 1));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
}

enum class Gap { none, before, after };

template <Gap gap>
__device__ void exchange(const float* x, float* out) {
  __shared__ float tile[kThreads];
  tile[threadIdx.x] = x[blockIdx.x * kThreads + threadIdx.x];
  if constexpr (gap == Gap::before) {
    __syncthreads();
  } else {
    cluster_barrier();
  }
  out[blockIdx.x * kThreads + threadIdx.x] = of_the_other_block(&tile[threadIdx.x]);
  if constexpr (gap != Gap::after) cluster_barrier();
}

#define CLUSTER(name, gap)                                                          \
  template <bool kWrong>                                                            \
  __global__ void __cluster_dims__(2, 1, 1) name(const float* x, float* out, int) { \
    exchange<kWrong ? Gap::gap : Gap::none>(x, out);                                \
  }
CLUSTER(read_from_a_block_that_has_not_written, before)
CLUSTER(read_from_a_block_that_has_left, after)

}  // namespace

#define RUN(name, grid)                                                                \
  if (a.fault == #name) {                                                              \
    const auto kernel = a.wrong ? name<true> : name<false>;                            \
    kernel<<<grid, kThreads, 0, opsmith::cuda_stream(ctx)>>>(a.x.data(), a.out.data(), \
                                                             static_cast<int>(a.N));   \
  }

void clusters(const opsmith::Context& ctx, const peers::clusters_args& a) {
  RUN(read_from_a_block_that_has_not_written, 2);
  RUN(read_from_a_block_that_has_left, 2);
}
OPSMITH_KERNEL(peers, clusters, cuda)
