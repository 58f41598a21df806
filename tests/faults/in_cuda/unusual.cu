// Right kernels that an eager checker would flag: published forms, and forms that look wrong.
#include "unusual.h"

#include <cooperative_groups.h>
#include <opsmith/cuda.h>

#include <cstdint>

namespace {

constexpr int kThreads = 96;
constexpr unsigned kAll = 0xffffffffu;

#define UNUSUAL(name) __global__ void name(const float* x, float* out, void* memory, int n)

// C++20 has a function of this name, C++17 has none.
__device__ float lerp(float a, float b, float t) { return a + t * (b - a); }

UNUSUAL(own_lerp) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < n) out[i] = lerp(x[i], x[i], 0.5f);
}

// --- atomic operations -------------------------------------------------------------------------

// As in NVIDIA's programming guide, for devices without atomicAdd(double*).
__device__ double add_by_cas(double* address, double value) {
  auto* bits = reinterpret_cast<unsigned long long*>(address);
  unsigned long long old = *bits, assumed;
  do {
    assumed = old;
    old = atomicCAS(
        bits, assumed,
        __double_as_longlong(value + __longlong_as_double(static_cast<long long>(assumed))));
  } while (assumed != old);
  return __longlong_as_double(static_cast<long long>(old));
}

UNUSUAL(double_by_cas) {
  __shared__ double total;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += kThreads) add_by_cas(&total, x[i]);
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += kThreads) out[i] = static_cast<float>(total);
}

UNUSUAL(volatile_before_cas) {
  __shared__ int bits;
  if (threadIdx.x == 0) bits = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += kThreads) {
    int seen = *static_cast<volatile int*>(&bits);
    while (__int_as_float(seen) < x[i]) {
      const int old = atomicCAS(&bits, seen, __float_as_int(x[i]));
      if (old == seen) break;
      seen = old;
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += kThreads) out[i] = __int_as_float(bits);
}

UNUSUAL(maximum_as_int) {
  __shared__ int bits;
  if (threadIdx.x == 0) bits = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += kThreads) atomicMax(&bits, __float_as_int(x[i]));
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += kThreads) out[i] = __int_as_float(bits);
}

// Halves of a word, as for 16-bit numbers: the neighbour's half takes part in the comparison.
UNUSUAL(half_of_a_word_by_cas) {
  __shared__ unsigned words[2];
  if (threadIdx.x < 2) words[threadIdx.x] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += kThreads) {
    unsigned* word = &words[i % 4 / 2];
    const unsigned shift = i % 2 * 16;
    unsigned old = *word, assumed;
    do {
      assumed = old;
      const unsigned half = ((assumed >> shift) + 1) & 0xffffu;
      old = atomicCAS(word, assumed, (assumed & ~(0xffffu << shift)) | half << shift);
    } while (assumed != old);
  }
  __syncthreads();
  const unsigned all =
      (words[0] & 0xffffu) + (words[0] >> 16) + (words[1] & 0xffffu) + (words[1] >> 16);
  for (int i = threadIdx.x; i < n; i += kThreads) out[i] = static_cast<float>(all);
}

UNUSUAL(lock_of_a_block) {
  __shared__ int lock;
  __shared__ float total;
  if (threadIdx.x == 0) lock = 0, total = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += kThreads) {
    while (atomicCAS(&lock, 0, 1) != 0) {
    }
    __threadfence_block();
    total += x[i];
    __threadfence_block();
    atomicExch(&lock, 0);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += kThreads) out[i] = total;
}

UNUSUAL(lock_of_the_grid) {
  auto* lock = static_cast<int*>(memory);
  auto* total = static_cast<float*>(memory) + 1;
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < n) {
    while (atomicCAS(lock, 0, 1) != 0) {
    }
    __threadfence();
    *total += x[i];
    __threadfence();
    atomicExch(lock, 0);
  }
  // The last block gives the result.
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(lock + 2, 1) == static_cast<int>(gridDim.x) - 1;
  __syncthreads();
  if (!last) return;
  for (int k = threadIdx.x; k < n; k += kThreads) out[k] = *total;
}

UNUSUAL(count_in_blocks_then_in_grid) {
  __shared__ unsigned count;
  auto* all = static_cast<unsigned*>(memory);
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < n) atomicAdd_block(&count, 1u);
  __syncthreads();
  if (threadIdx.x == 0) {
    atomicAdd(all, count);
    __threadfence();
    if (atomicInc(all + 1, gridDim.x - 1) == gridDim.x - 1) {
      const unsigned total = atomicAdd(all, 0u);
      for (int k = 0; k < n; ++k) out[k] = static_cast<float>(total);
    }
  }
}

// --- fences and flags --------------------------------------------------------------------------

// Every thread writes and fences, then one takes the ticket.
UNUSUAL(all_fence_before_the_barrier) {
  auto* sums = static_cast<float*>(memory) + 1;
  auto* ticket = static_cast<unsigned*>(memory);
  __shared__ bool last;
  const int i = blockIdx.x * kThreads + threadIdx.x;
  sums[i] = i < n ? x[i] : 0.0f;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(ticket, 1u) == gridDim.x - 1;
  __syncthreads();
  if (!last) return;
  for (int k = threadIdx.x; k < n; k += kThreads) out[k] = sums[n - 1 - k];
}

// A scan in one pass: each block, by the order in which blocks begin, waits for what the block
// before has said through a volatile flag.
UNUSUAL(look_back) {
  auto* ticket = static_cast<unsigned*>(memory);
  auto* flags = reinterpret_cast<volatile int*>(ticket + 1);
  auto* sums = reinterpret_cast<volatile float*>(ticket + 1 + gridDim.x);
  __shared__ float tile[kThreads];
  __shared__ unsigned block;
  __shared__ float before;
  if (threadIdx.x == 0) block = atomicAdd(ticket, 1u);
  __syncthreads();
  const int i = static_cast<int>(block) * kThreads + static_cast<int>(threadIdx.x);
  tile[threadIdx.x] = i < n ? x[i] : 0.0f;
  for (int step = 1; step < kThreads; step *= 2) {
    __syncthreads();
    const float add = threadIdx.x >= step ? tile[threadIdx.x - step] : 0.0f;
    __syncthreads();
    tile[threadIdx.x] += add;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    float all = 0;
    if (block > 0) {
      while (flags[block - 1] == 0) {
      }
      __threadfence();
      all = sums[block - 1];
    }
    sums[block] = all + tile[kThreads - 1];
    __threadfence();
    flags[block] = 1;
    before = all;
  }
  __syncthreads();
  if (i < n) out[i] = before + tile[threadIdx.x];
}

// The same, and the sum is no volatile: the fences order it.
UNUSUAL(look_back_by_fences) {
  auto* ticket = static_cast<unsigned*>(memory);
  auto* flags = ticket + 1;
  auto* sums = reinterpret_cast<float*>(ticket + 1 + gridDim.x);
  __shared__ unsigned block;
  __shared__ float before;
  if (threadIdx.x == 0) block = atomicAdd(ticket, 1u);
  __syncthreads();
  const int first = static_cast<int>(block) * kThreads;
  if (threadIdx.x == 0) {
    float own = 0;
    for (int i = first; i < min(n, first + kThreads); ++i) own += x[i];
    float all = 0;
    if (block > 0) {
      while (atomicAdd(&flags[block - 1], 0u) == 0) {
      }
      __threadfence();
      all = sums[block - 1];
    }
    sums[block] = all + own;
    __threadfence();
    atomicExch(&flags[block], 1u);
    before = all;
  }
  __syncthreads();
  const int i = first + static_cast<int>(threadIdx.x);
  if (i >= n) return;
  float sum = before;
  for (int k = first; k <= i; ++k) sum += x[k];
  out[i] = sum;
}

// One warp hands to another within a block, without a barrier.
UNUSUAL(warp_hands_to_warp) {
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
      __threadfence_block();
      ready = 1;
    }
  } else if (warp == 1) {
    if (lane == 0) {
      while (ready == 0) {
      }
      __threadfence_block();
    }
    __syncwarp();
    float sum = 0;
    for (int k = 0; k < 32; ++k) sum += tile[k];
    for (int i = lane; i < n; i += 32) out[i] = sum;
  }
}

// Directly behind a directive, as in many published kernels.
#include <cstdint>
__device__ unsigned finished;
__device__ float last_sum, table[4] = {1.0f, 2.0f, 3.0f, 4.0f};

UNUSUAL(variables_of_the_device) {
  auto* sums = static_cast<float*>(memory);
  __shared__ bool last;
  if (threadIdx.x == 0) {
    float sum = 0;
    for (int i = blockIdx.x * kThreads; i < min(n, (int(blockIdx.x) + 1) * kThreads); ++i)
      sum += x[i];
    sums[blockIdx.x] = sum * table[0];
    __threadfence();
    last = atomicInc(&finished, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  if (threadIdx.x == 0) {
    last_sum = 0;
    for (unsigned block = 0; block < gridDim.x; ++block) last_sum += sums[block];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += kThreads) out[i] = last_sum;
}

// --- warps -------------------------------------------------------------------------------------

UNUSUAL(halves_of_a_warp) {
  __shared__ float tile[kThreads];
  const unsigned lane = threadIdx.x % 32;
  const unsigned mask = lane < 16 ? 0x0000ffffu : 0xffff0000u;
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += kThreads) sum += x[i];
  for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(mask, sum, step);
  tile[threadIdx.x] = sum;
  __syncwarp(mask);
  const float other = tile[threadIdx.x / 16 * 16];
  __syncthreads();
  tile[threadIdx.x] = other;
  __syncthreads();
  float all = 0;
  for (int k = 0; k < kThreads; k += 16) all += tile[k];
  for (int i = threadIdx.x; i < n; i += kThreads) out[i] = all;
}

UNUSUAL(lanes_that_have_left) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  const unsigned mask = __ballot_sync(kAll, i < n);
  if (i >= n) return;
  const float first = __shfl_sync(mask, x[i], __ffs(static_cast<int>(mask)) - 1);
  out[i] = first - first + x[i];
}

UNUSUAL(leader_of_equals) {
  __shared__ unsigned counts[4];
  if (threadIdx.x < 4) counts[threadIdx.x] = 0;
  __syncthreads();
  for (int first = 0; first < n; first += kThreads) {
    const int i = first + static_cast<int>(threadIdx.x);
    const int key = i < n ? i % 4 : -1;
    const unsigned peers = __match_any_sync(kAll, key);
    const unsigned leader = __ffs(static_cast<int>(peers)) - 1;
    if (key >= 0 && threadIdx.x % 32 == leader) atomicAdd(&counts[key], __popc(peers));
  }
  __syncthreads();
  const unsigned all = counts[0] + counts[1] + counts[2] + counts[3];
  for (int i = threadIdx.x; i < n; i += kThreads) out[i] = static_cast<float>(all);
}

// --- memory ------------------------------------------------------------------------------------

UNUSUAL(vectors_in_aligned_chars) {
  __shared__ char before[4];
  __shared__ __align__(16) float tile[kThreads + 4];
  before[threadIdx.x % 4] = 0;
  const int i = blockIdx.x * kThreads + threadIdx.x;
  tile[threadIdx.x] = i < n ? x[i] : 0.0f;
  __syncthreads();
  const float4 four = reinterpret_cast<const float4*>(tile)[threadIdx.x / 4];
  const unsigned part = threadIdx.x % 4;
  const float mine = part == 0 ? four.x : part == 1 ? four.y : part == 2 ? four.z : four.w;
  if (i < n) out[i] = mine + before[0];
}

UNUSUAL(type_before_shared) {
  extern float __shared__ tile[];
  const int i = blockIdx.x * kThreads + threadIdx.x;
  tile[threadIdx.x] = i < n ? x[i] : 0.0f;
  __syncthreads();
  if (i < n) out[i] = tile[threadIdx.x];
}

UNUSUAL(two_uses_of_dynamic) {
  extern __shared__ __align__(16) unsigned char raw[];
  auto* values = reinterpret_cast<float*>(raw);
  auto* places = reinterpret_cast<int*>(values + kThreads);
  const int i = blockIdx.x * kThreads + threadIdx.x;
  values[threadIdx.x] = i < n ? x[i] : 0.0f;
  places[threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncthreads();
  if (i < n) out[i] = values[places[threadIdx.x]];
}

// Written by one thread, read by all after a barrier; and again, with the other half.
UNUSUAL(two_buffers) {
  __shared__ float buffers[2][kThreads];
  const int rounds = (n + kThreads - 1) / kThreads;
  for (int round = 0; round < rounds; ++round) {
    const int i = round * kThreads + static_cast<int>(threadIdx.x);
    const int count = min(kThreads, n - round * kThreads);
    if (i < n) buffers[round % 2][threadIdx.x] = x[i];
    __syncthreads();  // one barrier for each round is enough
    if (i < n) out[i] = buffers[round % 2][count - 1 - threadIdx.x];
  }
}

UNUSUAL(same_value_by_all) {
  __shared__ int any;
  if (threadIdx.x == 0) any = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += kThreads) {
    if (x[i] > 0.5f) any = 1;
  }
  if (__syncthreads_or(0) == 0) {
    for (int i = threadIdx.x; i < n; i += kThreads) out[i] = any != 0 ? 1.0f : 0.0f;
  }
}

UNUSUAL(read_only_cache) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < n) out[i] = __ldg(x + i);
}

UNUSUAL(result_as_scratch) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < n) out[i] = 2 * x[i];
  __syncthreads();
  if (i < n) out[i] = out[i] - x[i];
}

__global__ void __launch_bounds__(kThreads, 2) bounded(const float* x, float* out, int n) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < n) out[i] = x[i];
}

template <int kMost>
__global__ void __launch_bounds__(kMost) bounded_template(const float* x, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i];
}

__global__ void much_shared(const float* x, float* out, int n) {
  extern __shared__ float much[];
  __shared__ float some[kThreads];
  const int i = blockIdx.x * kThreads + threadIdx.x;
  some[threadIdx.x] = i < n ? x[i] : 0.0f;
  much[20000 + threadIdx.x] = some[threadIdx.x];
  __syncthreads();
  if (i < n) out[i] = much[20000 + threadIdx.x];
}

constexpr int halved(int value) { return value / 2; }  // nvcc takes it by --expt-relaxed-constexpr
unsigned blocks_of(int n) { return static_cast<unsigned>((n + kThreads - 1) / kThreads); }

UNUSUAL(calls_a_constant_function) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < n) out[i] = halved(2 * i) == i ? x[i] : 0.0f;
}

UNUSUAL(least_and_most_of_words) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= n) return;
  const unsigned small = i, large = 0x80000000u + small;  // less than 0 as an int
  const long long wide = 5000000000 + i;                  // less than 2^30 as an int
  const unsigned long long all = ~0ull;
  const bool words = umin(large, small) == small && umax(small, large) == large;
  const bool signed_ones = llmin(wide, -1 - i) == -1 - i && llmax(1 << 30, wide) == wide;
  const bool unsigned_ones = ullmin(all, small) == small && ullmax(small, all) == all;
  out[i] = words && signed_ones && unsigned_ones ? x[i] : -1.0f;
}

UNUSUAL(rank_in_the_grid) {
  const auto i = cooperative_groups::this_grid().thread_rank();
  if (i >= static_cast<unsigned>(n)) return;
  out[i] = x[i];
}

}  // namespace

#define RUN(name, grid, shared)                                                           \
  if (a.kernel == #name) {                                                                \
    name<<<grid, kThreads, shared, stream>>>(a.x.data(), a.out.data(), memory.data(), n); \
  }

void unusual(const opsmith::Context& ctx, const cuda_faults::unusual_args& a) {
  const int n = static_cast<int>(a.N);
  const cudaStream_t stream = opsmith::cuda_stream(ctx);
  const unsigned blocks = blocks_of(n);
  const auto memory = ctx.scratch<float>(blocks * kThreads + 4);
  cudaMemsetAsync(memory.data(), 0, (blocks * kThreads + 4) * sizeof(float), stream);
  RUN(double_by_cas, 1, 0)
  RUN(volatile_before_cas, 1, 0)
  RUN(maximum_as_int, 1, 0)
  RUN(half_of_a_word_by_cas, 1, 0)
  RUN(lock_of_a_block, 1, 0)
  RUN(lock_of_the_grid, blocks, 0)
  RUN(count_in_blocks_then_in_grid, blocks, 0)
  RUN(all_fence_before_the_barrier, blocks, 0)
  RUN(look_back, blocks, 0)
  RUN(look_back_by_fences, blocks, 0)
  RUN(warp_hands_to_warp, 1, 0)
  RUN(variables_of_the_device, blocks, 0)
  RUN(halves_of_a_warp, 1, 0)
  RUN(lanes_that_have_left, blocks, 0)
  RUN(leader_of_equals, 1, 0)
  RUN(vectors_in_aligned_chars, blocks, 0)
  RUN(type_before_shared, blocks, kThreads * sizeof(float))
  RUN(two_uses_of_dynamic, blocks, 2 * kThreads * sizeof(float))
  RUN(two_buffers, 1, 0)
  RUN(same_value_by_all, 1, 0)
  RUN(read_only_cache, blocks, 0)
  RUN(result_as_scratch, blocks, 0)
  RUN(calls_a_constant_function, blocks, 0)
  RUN(least_and_most_of_words, blocks, 0)
  RUN(own_lerp, blocks, 0)
  RUN(rank_in_the_grid, blocks, 0)
  if (a.kernel == "bounded") bounded<<<blocks, kThreads, 0, stream>>>(a.x.data(), a.out.data(), n);
  if (a.kernel == "bounded_template") {
    bounded_template<256><<<blocks, kThreads, 0, stream>>>(a.x.data(), a.out.data(), n);
  }
  if (a.kernel == "much_shared") {
    const int bytes = (20000 + kThreads) * static_cast<int>(sizeof(float));
    cudaFuncSetAttribute(much_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    much_shared<<<blocks, kThreads, bytes, stream>>>(a.x.data(), a.out.data(), n);
  }
  if (a.kernel == "copy_of_constant_size") {
    cudaMemcpyAsync(a.out.data(), a.x.data(), n * sizeof(float), cudaMemcpyDeviceToDevice, stream);
    cudaMemcpyAsync(a.out.data(), a.x.data(), sizeof(float), cudaMemcpyDeviceToDevice, stream);
  }
}
OPSMITH_KERNEL(cuda_faults, unusual, cuda)
