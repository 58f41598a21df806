// Faults in the order of accesses between threads; see faults.cu for the form.
#include "orders.h"

#include <opsmith/cuda.h>
#include <cuda/atomic>

#include <cstdint>

namespace {

constexpr int kThreads = 96;
constexpr unsigned kAll = 0xffffffffu;

#define ORDER(name)      \
  template <bool kWrong> \
  __global__ void name(const float* x, float* out, void* memory, int n)

// --- the last block ----------------------------------------------------------------------------

enum class Mistake { none, fence_first, fence_last, fence_of_block, scope_of_block, no_barrier };

// Each block sums its part, and the last gives the sum of all.
template <Mistake kMistake>
__device__ void last_block(const float* x, float* out, void* memory, int n) {
  auto* ticket = static_cast<unsigned*>(memory);
  auto* sums = static_cast<float*>(memory) + 1;
  __shared__ bool last;
  if (threadIdx.x == 0) {
    float sum = 0;
    for (int i = blockIdx.x * kThreads; i < min(n, (int(blockIdx.x) + 1) * kThreads); ++i) {
      sum += x[i];
    }
    if constexpr (kMistake == Mistake::fence_first) __threadfence();
    sums[blockIdx.x] = sum;
    if constexpr (kMistake == Mistake::fence_of_block) __threadfence_block();
    if constexpr (kMistake == Mistake::none || kMistake == Mistake::no_barrier ||
                  kMistake == Mistake::scope_of_block) {
      __threadfence();
    }
    if constexpr (kMistake == Mistake::scope_of_block) {
      last = atomicAdd_block(ticket, 1u) == gridDim.x - 1;  // FAULT count_in_block_scope
    } else {
      last = atomicAdd(ticket, 1u) == gridDim.x - 1;
    }
    if constexpr (kMistake == Mistake::fence_last) __threadfence();
  }
  if constexpr (kMistake != Mistake::no_barrier) __syncthreads();
  if (!last) return;  // FAULT ticket_without_barrier
  for (int i = threadIdx.x; i < n; i += kThreads) {
    float total = 0;
    for (unsigned block = 0; block < gridDim.x; ++block) total += sums[block];  // FAULT last_sum
    out[i] = total;
  }
}
#define LAST(name, mistake) \
  ORDER(name) { last_block<kWrong ? Mistake::mistake : Mistake::none>(x, out, memory, n); }
LAST(fence_before_the_store, fence_first)
LAST(fence_after_the_ticket, fence_last)
LAST(fence_of_a_block, fence_of_block)
LAST(count_in_block_scope, scope_of_block)
LAST(ticket_without_barrier, no_barrier)

ORDER(only_one_thread_fences) {
  auto* ticket = static_cast<unsigned*>(memory);
  auto* copies = static_cast<float*>(memory) + 1;
  __shared__ bool last;
  const int i = blockIdx.x * kThreads + threadIdx.x;
  copies[i] = i < n ? x[i] : 0.0f;
  if constexpr (!kWrong) __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(ticket, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  for (int k = threadIdx.x; k < n; k += kThreads) out[k] = copies[n - 1 - k];  // FAULT
}

// --- flags and locks ---------------------------------------------------------------------------

template <bool kWrites, bool kReads>
__device__ void hand_over(const float* x, float* out, int n) {
  __shared__ float tile[32];
  __shared__ volatile int ready;
  if (threadIdx.x == 0) ready = 0;
  __syncthreads();
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp == 0) {
    float sum = 0;
    for (int i = lane; i < n; i += 32) sum += x[i];
    tile[lane] = sum;
    __syncwarp();
    if (lane == 0) {
      if constexpr (kWrites) __threadfence_block();
      ready = 1;
    }
  } else if (warp == 1 && lane == 0) {
    while (ready == 0) {
    }
    if constexpr (kReads) __threadfence_block();
    float sum = 0;
    for (int k = 0; k < 32; ++k) sum += tile[k];  // FAULT flag
    for (int i = 0; i < n; ++i) out[i] = sum;
  }
}
ORDER(flag_set_without_fence) { hand_over<!kWrong, true>(x, out, n); }
ORDER(flag_read_without_fence) { hand_over<true, !kWrong>(x, out, n); }

template <cuda::memory_order kStore, cuda::memory_order kLoad>
__device__ void hand_over_by_reference(const float* x, float* out, int n) {
  __shared__ float first;
  __shared__ int ready;
  if (threadIdx.x == 0) ready = 0;
  __syncthreads();
  const cuda::atomic_ref<int, cuda::thread_scope_block> flag(ready);
  if (threadIdx.x == 0) {
    first = x[0];
    flag.store(1, kStore);
  } else if (threadIdx.x == 32) {
    while (flag.load(kLoad) == 0) {
    }
    const float found = first;  // FAULT reference
    for (int i = 0; i < n; ++i) out[i] = found;
  }
}
ORDER(flag_stored_relaxed) {
  constexpr auto order = kWrong ? cuda::memory_order_relaxed : cuda::memory_order_release;
  hand_over_by_reference<order, cuda::memory_order_acquire>(x, out, n);
}
ORDER(flag_loaded_relaxed) {
  constexpr auto order = kWrong ? cuda::memory_order_relaxed : cuda::memory_order_acquire;
  hand_over_by_reference<cuda::memory_order_release, order>(x, out, n);
}

// The last block gives the number of all threads.
ORDER(counted_by_a_reference_of_a_block) {
  constexpr auto scope = kWrong ? cuda::thread_scope_block : cuda::thread_scope_device;
  const cuda::atomic_ref<unsigned, scope> count(*static_cast<unsigned*>(memory));
  if (blockIdx.x * kThreads + threadIdx.x >= n) return;
  const unsigned before = count.fetch_add(1, cuda::memory_order_relaxed);  // FAULT
  if (before != n - 1u) return;
  for (int i = 0; i < n; ++i) out[i] = before + 1;
}

ORDER(plain_flag) {
  __shared__ int ready;
  __shared__ float first;
  if (threadIdx.x == 0) ready = 0;
  __syncthreads();
  if (threadIdx.x == 0) {
    first = x[0];
    __threadfence_block();
    if (kWrong) {
      ready = 1;  // FAULT
    } else {
      atomicExch(&ready, 1);
    }
  } else if (threadIdx.x == 32) {
    while (atomicAdd(&ready, 0) == 0) {  // FAULT
    }
    __threadfence_block();
    for (int i = 0; i < n; ++i) out[i] = first;
  }
}

template <bool kBefore, bool kAfter, bool kBlock, bool kStore>
__device__ void add_locked(const float* x, float* out, void* memory, int n) {
  auto* lock = static_cast<int*>(memory);
  auto* total = static_cast<float*>(memory) + 1;
  auto* ticket = static_cast<unsigned*>(memory) + 2;
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < n) {
    if constexpr (kBlock) {
      while (atomicCAS_block(lock, 0, 1) != 0) {  // FAULT lock_of_a_block_in_a_grid
      }
    } else {
      while (atomicCAS(lock, 0, 1) != 0) {  // FAULT lock_released_by_a_store
      }
    }
    if constexpr (kBefore) __threadfence();
    *total += x[i];  // FAULT locked
    if constexpr (kAfter) __threadfence();
    if constexpr (kStore) {
      *lock = 0;  // FAULT lock_released_by_a_store
    } else {
      atomicExch(lock, 0);
    }
  }
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(ticket, 1u) == gridDim.x - 1;
  __syncthreads();
  if (!last) return;
  for (int k = threadIdx.x; k < n; k += kThreads) out[k] = *total;
}
ORDER(lock_without_fences) { add_locked<!kWrong, !kWrong, false, false>(x, out, memory, n); }
ORDER(lock_taken_without_fence) { add_locked<!kWrong, true, false, false>(x, out, memory, n); }
ORDER(lock_released_without_fence) { add_locked<true, !kWrong, false, false>(x, out, memory, n); }
ORDER(lock_of_a_block_in_a_grid) { add_locked<true, true, kWrong, false>(x, out, memory, n); }
ORDER(lock_released_by_a_store) { add_locked<true, true, false, kWrong>(x, out, memory, n); }

// The first block waits for the last, which may not begin before it ends.
ORDER(waits_for_a_later_block) {
  auto* flags = static_cast<unsigned*>(memory) + 1;
  auto* ticket = static_cast<unsigned*>(memory);
  __shared__ unsigned block;
  if (threadIdx.x == 0) {
    block = atomicAdd(ticket, 1u);
    atomicExch(&flags[block], 1u);
    const unsigned other = kWrong ? (block + 1) % gridDim.x : (block == 0 ? 0 : block - 1);
    while (atomicAdd(&flags[other], 0u) == 0) {  // FAULT
    }
  }
  __syncthreads();
  const int i = static_cast<int>(block) * kThreads + static_cast<int>(threadIdx.x);
  if (i < n) out[i] = x[i];
}

// --- counters, maxima, sums --------------------------------------------------------------------

ORDER(counter_read_and_written) {
  __shared__ int count;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += kThreads) {
    if (kWrong) {
      const int before = count;  // FAULT
      count = before + 1;        // FAULT
    } else {
      atomicAdd(&count, 1);
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += kThreads) out[i] = static_cast<float>(count);
}

ORDER(maximum_read_and_written) {
  __shared__ int most;
  if (threadIdx.x == 0) most = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += kThreads) {
    const int bits = __float_as_int(x[i]);
    if (kWrong) {
      if (bits > most) most = bits;  // FAULT
    } else {
      atomicMax(&most, bits);
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += kThreads) out[i] = __int_as_float(most);
}

ORDER(sum_read_before_it_is_complete) {
  __shared__ float total;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += kThreads) atomicAdd(&total, x[i]);  // FAULT
  if constexpr (!kWrong) __syncthreads();
  const float all = total;  // FAULT
  for (int i = threadIdx.x; i < n; i += kThreads) out[i] = all;
}

ORDER(histogram_without_atomics) {
  __shared__ int bins[4];
  if (threadIdx.x < 4) bins[threadIdx.x] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += kThreads) {
    if (kWrong) {
      bins[i % 4] += 1;  // FAULT
    } else {
      atomicAdd(&bins[i % 4], 1);
    }
  }
  __syncthreads();
  const int all = bins[0] + bins[1] + bins[2] + bins[3];
  for (int i = threadIdx.x; i < n; i += kThreads) out[i] = static_cast<float>(all);
}

// --- variables of the device -------------------------------------------------------------------

// Directly behind a directive, as in many published kernels.
#include <cstdint>
__device__ float device_total;
__device__ float device_table[8];
__device__ unsigned device_count;

ORDER(variable_without_atomics) {
  __shared__ bool last;
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < n) {
    if (kWrong) {
      device_total += x[i];  // FAULT
    } else {
      atomicAdd(&device_total, x[i]);
    }
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicInc(&device_count, gridDim.x - 1) == gridDim.x - 1;
  __syncthreads();
  if (!last) return;
  const float all = device_total;  // FAULT
  __syncthreads();
  if (threadIdx.x == 0) device_total = 0;
  for (int k = threadIdx.x; k < n; k += kThreads) out[k] = all;
}

ORDER(variable_written_by_one_block) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (blockIdx.x == 0 && threadIdx.x < 8) device_table[threadIdx.x] = 1;  // FAULT
  __syncthreads();
  if (i < n) out[i] = x[i] * (kWrong ? device_table[i % 8] : 1.0f);  // FAULT
}

ORDER(variable_past_its_end) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  const float* table = device_table;
  if (i < n) out[i] = x[i] + 0 * (kWrong ? table[8 + i % 8] : 0.0f);  // FAULT
}

// --- the read-only cache -----------------------------------------------------------------------

ORDER(ldg_of_what_was_written) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < n) out[i] = x[i];                              // FAULT
  if (i < n) out[i] = kWrong ? __ldg(out + i) : out[i];  // FAULT
}

ORDER(written_after_ldg) {
  auto* copies = static_cast<float*>(memory);
  const int i = blockIdx.x * kThreads + threadIdx.x;
  const float before = kWrong ? __ldg(copies + i) : copies[i];  // FAULT
  __syncthreads();
  copies[i] = 1;  // FAULT
  if (i < n) out[i] = x[i] + before;
}

// --- warps -------------------------------------------------------------------------------------

ORDER(syncwarp_of_half_the_lanes) {
  __shared__ float tile[32];
  const unsigned lane = threadIdx.x;
  float sum = 0;
  for (int i = lane; i < n; i += 32) sum += x[i];
  tile[lane] = sum;  // FAULT
  __syncwarp(kWrong ? (lane < 16 ? 0x0000ffffu : 0xffff0000u) : kAll);
  float all = 0;
  for (int k = 0; k < 32; ++k) all += tile[k];  // FAULT
  for (int i = lane; i < n; i += 32) out[i] = all;
}

ORDER(syncwarp_between_warps) {
  __shared__ float tile[kThreads];
  const int i = blockIdx.x * kThreads + threadIdx.x;
  const int count = min(kThreads, n - static_cast<int>(blockIdx.x) * kThreads);
  if (i < n) tile[threadIdx.x] = x[i];  // FAULT
  if (kWrong) {
    __syncwarp();
  } else {
    __syncthreads();
  }
  if (i < n) out[i] = tile[count - 1 - threadIdx.x];  // FAULT
}

ORDER(last_round_without_barrier) {
  __shared__ float tile[kThreads];
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += kThreads) sum += x[i];
  tile[threadIdx.x] = sum;
  __syncthreads();
  for (int step = kThreads / 2; step >= 3; step /= 2) {
    if (threadIdx.x < step) tile[threadIdx.x] += tile[threadIdx.x + step];  // FAULT
    if (!kWrong || step > 48) __syncthreads();
  }
  __syncthreads();
  const float all = tile[0] + tile[1] + tile[2];
  for (int i = threadIdx.x; i < n; i += kThreads) out[i] = all;
}

ORDER(one_buffer_for_two_rounds) {
  __shared__ float buffers[2][kThreads];
  const int rounds = (n + kThreads - 1) / kThreads;
  for (int round = 0; round < rounds; ++round) {
    const int i = round * kThreads + static_cast<int>(threadIdx.x);
    const int count = min(kThreads, n - round * kThreads);
    float* buffer = buffers[kWrong ? 0 : round % 2];
    if (i < n) buffer[threadIdx.x] = x[i];  // FAULT
    __syncthreads();
    if (i < n) out[i] = buffer[count - 1 - threadIdx.x];  // FAULT
  }
}

// --- memory ------------------------------------------------------------------------------------

ORDER(vector_in_unaligned_shared) {
  __shared__ float loose[kThreads + 2];
  __shared__ __align__(16) float aligned[kThreads + 2];
  float* tile = kWrong ? loose : aligned;
  const int i = blockIdx.x * kThreads + threadIdx.x;
  tile[threadIdx.x] = i < n ? x[i] : 0.0f;
  __syncthreads();
  const float4 four = *reinterpret_cast<const float4*>(tile + threadIdx.x / 4 * 4);  // FAULT
  const unsigned part = threadIdx.x % 4;
  if (i < n) out[i] = part == 0 ? four.x : part == 1 ? four.y : part == 2 ? four.z : four.w;
}

#ifndef of_the_host  // nvcc refuses this fault: for a GPU, a macro takes its place
float of_the_host(float value) { return value; }  // FAULT calls_the_host
#endif

ORDER(calls_the_host) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < n) out[i] = kWrong ? of_the_host(x[i]) : x[i];
}

}  // namespace

#define RUN(name, grid, block)                                                             \
  if (a.fault == #name) {                                                                  \
    if (a.wrong) {                                                                         \
      name<true><<<grid, block, 0, stream>>>(a.x.data(), a.out.data(), memory.data(), n);  \
    } else {                                                                               \
      name<false><<<grid, block, 0, stream>>>(a.x.data(), a.out.data(), memory.data(), n); \
    }                                                                                      \
  }

void orders(const opsmith::Context& ctx, const cuda_faults::orders_args& a) {
  const int n = static_cast<int>(a.N);
  const cudaStream_t stream = opsmith::cuda_stream(ctx);
  const unsigned blocks = opsmith::blocks_for(n, kThreads);
  const size_t bytes = (blocks * kThreads + 4) * sizeof(float);
  const auto memory = ctx.scratch<float>(blocks * kThreads + 4);
  cudaMemsetAsync(memory.data(), 0, bytes, stream);
  // clang-format off
  RUN(fence_before_the_store, blocks, kThreads) RUN(fence_after_the_ticket, blocks, kThreads)
  RUN(fence_of_a_block, blocks, kThreads) RUN(count_in_block_scope, blocks, kThreads)
  RUN(ticket_without_barrier, blocks, kThreads) RUN(only_one_thread_fences, blocks, kThreads)
  RUN(flag_set_without_fence, 1, kThreads) RUN(flag_read_without_fence, 1, kThreads)
  RUN(flag_stored_relaxed, 1, kThreads) RUN(flag_loaded_relaxed, 1, kThreads)
  RUN(counted_by_a_reference_of_a_block, blocks, kThreads)
  RUN(plain_flag, 1, kThreads) RUN(lock_without_fences, blocks, kThreads)
  RUN(lock_taken_without_fence, blocks, kThreads)
  RUN(lock_released_without_fence, blocks, kThreads)
  RUN(lock_of_a_block_in_a_grid, blocks, kThreads)
  RUN(lock_released_by_a_store, blocks, kThreads) RUN(waits_for_a_later_block, blocks, kThreads)
  RUN(counter_read_and_written, 1, kThreads) RUN(maximum_read_and_written, 1, kThreads)
  RUN(sum_read_before_it_is_complete, 1, kThreads)
  RUN(histogram_without_atomics, 1, kThreads) RUN(variable_without_atomics, blocks, kThreads)
  RUN(variable_written_by_one_block, blocks, kThreads)
  RUN(variable_past_its_end, blocks, kThreads) RUN(ldg_of_what_was_written, blocks, kThreads)
  RUN(written_after_ldg, blocks, kThreads) RUN(syncwarp_of_half_the_lanes, 1, 32)
  RUN(syncwarp_between_warps, blocks, kThreads) RUN(last_round_without_barrier, 1, kThreads)
  RUN(one_buffer_for_two_rounds, 1, kThreads) RUN(vector_in_unaligned_shared, blocks, kThreads)
  RUN(calls_the_host, blocks, kThreads)
  // clang-format on
}
OPSMITH_KERNEL(cuda_faults, orders, cuda)
