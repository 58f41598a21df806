// Faults with named barriers: the first warp brings numbers, the second takes them.
// The form is that of tests/faults/in_cuda/faults.cu.
#include "named_barriers.h"

#include <opsmith/cuda.h>

#include <cstdint>

namespace {

constexpr int kThreads = 64;

#define KERNEL(name)     \
  template <bool kWrong> \
  __global__ void name(const float* x, float* out, int n)

__device__ void arrive_at_1(int threads) {
  asm volatile("bar.arrive 1, %0;" ::"r"(threads) : "memory");
}
__device__ void wait_at(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

KERNEL(taken_without_the_barrier) {
  __shared__ float tile[32];
  const int lane = threadIdx.x % 32;
  if (threadIdx.x < 32) {
    tile[lane] = x[lane];
    arrive_at_1(64);
  } else {
    if constexpr (!kWrong) wait_at(1, 64);
    out[lane] = tile[31 - lane];
  }
}

KERNEL(waits_at_another_barrier) {
  __shared__ float tile[32];
  const int lane = threadIdx.x % 32;
  if (threadIdx.x < 32) {
    tile[lane] = x[lane];
    arrive_at_1(64);
  } else {
    wait_at(kWrong ? 2 : 1, 64);
    out[lane] = tile[31 - lane];
  }
}

KERNEL(waits_for_too_many) {
  __shared__ float tile[32];
  const int lane = threadIdx.x % 32;
  if (threadIdx.x < 32) {
    tile[lane] = x[lane];
    wait_at(1, kWrong ? 96 : 64);
  } else {
    wait_at(1, kWrong ? 96 : 64);
    out[lane] = tile[31 - lane];
  }
}

KERNEL(brought_again_too_early) {
  __shared__ float tile[32];
  const int lane = threadIdx.x % 32;
  for (int round = 0; round < n / 32; ++round) {
    if (threadIdx.x < 32) {
      tile[lane] = x[round * 32 + lane];
      wait_at(1, 64);
      if constexpr (!kWrong) wait_at(2, 64);
    } else {
      wait_at(1, 64);
      out[round * 32 + lane] = tile[31 - lane];
      if constexpr (!kWrong) wait_at(2, 64);
    }
  }
}

}  // namespace

#define RUN(name, grid)                                                                \
  if (a.fault == #name) {                                                              \
    const auto kernel = a.wrong ? name<true> : name<false>;                            \
    kernel<<<grid, kThreads, 0, opsmith::cuda_stream(ctx)>>>(a.x.data(), a.out.data(), \
                                                             static_cast<int>(a.N));   \
  }

void named_barriers(const opsmith::Context& ctx, const peers::named_barriers_args& a) {
  RUN(taken_without_the_barrier, 1);
  RUN(waits_at_another_barrier, 1);
  RUN(waits_for_too_many, 1);
  RUN(brought_again_too_early, 1);
}
OPSMITH_KERNEL(peers, named_barriers, cuda)
