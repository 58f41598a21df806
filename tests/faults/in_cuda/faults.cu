// Kernels with one fault each, beside the same without it: `kWrong` decides. The comment FAULT
// marks the line that has to be named.
#include "faulty.h"

#include <opsmith/cuda.h>

#include <cstdint>

namespace {

constexpr int kThreads = 96;
constexpr unsigned kAll = 0xffffffffu;

#define SCALE(name)      \
  template <bool kWrong> \
  __global__ void name(const float* x, float* out, int n)

// --- barriers ----------------------------------------------------------------------------------

SCALE(no_barrier) {
  __shared__ float tile[kThreads];
  const int first = blockIdx.x * kThreads, i = first + threadIdx.x;
  const int count = min(kThreads, n - first);
  if (i < n) tile[threadIdx.x] = x[i];
  if constexpr (!kWrong) __syncthreads();
  if (i < n) {
    const float other = tile[count - 1 - threadIdx.x];  // FAULT
    out[i] = other;
  }
}

SCALE(no_barrier_between_steps) {
  __shared__ float sums[kThreads];
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += kThreads) sum += x[i];
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int step = 1; step < kThreads; step *= 2) {
    const int other = threadIdx.x + step;
    const float add = other < kThreads ? sums[other] : 0.0f;
    if constexpr (!kWrong) __syncthreads();
    sums[threadIdx.x] += add;  // FAULT
    __syncthreads();
  }
  for (int i = threadIdx.x; i < n; i += kThreads) out[i] = sums[0];
}

SCALE(shared_memory_used_again) {
  __shared__ float tile[kThreads];
  for (int first = 0; first < n; first += kThreads) {
    const int count = min(kThreads, n - first);
    if (threadIdx.x < count) tile[threadIdx.x] = x[first + threadIdx.x];  // FAULT
    __syncthreads();
    if (threadIdx.x < count) out[first + threadIdx.x] = tile[count - 1 - threadIdx.x];
    if constexpr (!kWrong) __syncthreads();
  }
}

// Behind the second barrier, one thread reads half of a word, and another one writes the other
// half.
SCALE(half_of_a_word_written) {
  __shared__ ushort2 tile[kThreads];
  const int first = blockIdx.x * kThreads, i = first + threadIdx.x;
  const int count = min(kThreads, n - first), other = count - 1 - threadIdx.x;
  if (i < n) {
    const unsigned bits = __float_as_uint(x[i]);
    tile[threadIdx.x] = make_ushort2(bits & 0xffff, bits >> 16);
  }
  __syncthreads();
  const unsigned high = i < n ? tile[other].y : 0;
  const unsigned before = i < n ? tile[other].x : 0;
  if constexpr (!kWrong) __syncthreads();
  if (i < n) {
    tile[threadIdx.x].y = 0;  // FAULT
    const unsigned low = tile[other].x;
    out[i] = low == before ? __uint_as_float(high << 16 | low) : 0;
  }
}

SCALE(barrier_in_a_branch) {
  __shared__ float tile[kThreads];
  const int first = blockIdx.x * kThreads, i = first + threadIdx.x;
  const int count = min(kThreads, n - first);
  if (i < n) {
    tile[threadIdx.x] = x[i];
    if constexpr (kWrong) __syncthreads();  // FAULT
  }
  __syncthreads();
  if (i < n) out[i] = tile[count - 1 - threadIdx.x];
}

SCALE(return_before_barrier) {
  __shared__ float tile[kThreads];
  const int first = blockIdx.x * kThreads, i = first + threadIdx.x;
  const int count = min(kThreads, n - first);
  const int next = (threadIdx.x + 1) % kThreads;  // whose element the thread loads
  if (kWrong && i >= n) return;
  if (first + next < n) tile[next] = x[first + next];
  __syncthreads();  // FAULT
  if (i < n) out[i] = tile[count - 1 - threadIdx.x];
}

SCALE(two_barriers) {
  __shared__ float tile[kThreads];
  const int i = threadIdx.x;
  tile[i] = i < n ? x[i] : 0.0f;
  if (kWrong && i % 2 == 0) {
    __syncthreads();  // FAULT
  } else if (kWrong) {
    __syncthreads();
  }
  if constexpr (!kWrong) __syncthreads();
  for (int at = i; at < n; at += kThreads) out[at] = tile[0];
}

// --- warps -------------------------------------------------------------------------------------

SCALE(warp_without_barrier) {
  __shared__ float sums[32];
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += 32) sum += x[i];
  sums[threadIdx.x] = sum;  // FAULT
  if constexpr (!kWrong) __syncwarp();
  for (int step = 16; step > 0; step /= 2) {
    const float add = threadIdx.x < step ? sums[threadIdx.x + step] : 0.0f;  // FAULT
    if constexpr (!kWrong) __syncwarp();
    sums[threadIdx.x] += add;
    if constexpr (!kWrong) __syncwarp();
  }
  for (int i = threadIdx.x; i < n; i += 32) out[i] = sums[0];
}

SCALE(shuffle_in_a_branch) {
  const int i = threadIdx.x;
  const int count = min(n, 32);
  float value = i < count ? x[i] : 0.0f;
  if (!kWrong || i < count) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(kAll, value, step);  // FAULT
  }
  value = __shfl_sync(kWrong ? (count >= 32 ? kAll : (1u << count) - 1) | 1u << i : kAll, value, 0);
  for (int at = i; at < n; at += 32) out[at] = value;
}

SCALE(mask_without_own_lane) {
  const int i = threadIdx.x;
  float value = i < n ? x[i] : 0.0f;
  value = __shfl_xor_sync(kWrong ? 0x0000ffffu : kAll, value, 1);  // FAULT
  const int other = i ^ 1;
  if (i < n) out[i] = other < n ? value : 0.0f;
  for (int at = i + 32; at < n; at += 32) out[at] = 0;
}

SCALE(lanes_in_two_shuffles) {
  const int i = threadIdx.x;
  const float value = i < n ? x[i] : 0.0f;
  float first = 0;
  if (kWrong && i % 2 == 0) {
    first = __shfl_sync(kAll, value, 0);  // FAULT
  } else if (kWrong) {
    first = __shfl_sync(kAll, value, 0);
  } else {
    first = __shfl_sync(kAll, value, 0);
  }
  for (int at = i; at < n; at += 32) out[at] = first;
}

SCALE(active_mask_taken_for_all) {
  const int i = threadIdx.x;
  float value = 0;
  for (int at = i; at < n; at += 32) value += x[at];
  const unsigned mask = kWrong ? __activemask() : kAll;
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(mask, value, step);  // FAULT
  for (int at = i; at < n; at += 32) out[at] = value;
}

// Every vote, match and reduction of a warp: a right kernel reads what its lanes brought, and no
// memory of the runtime's.
SCALE(lane_left_out_of_votes) {
  const int i = threadIdx.x;
  const unsigned lanes = kAll;
  if (kWrong && i % 32 == 7) return;  // the others do not know
  const unsigned above = __ballot_sync(lanes, i < n && x[i] > 0.5f);
  const unsigned alike = __match_any_sync(lanes, i / 4);
  int equal = 0;
  __match_all_sync(lanes, i / 32, &equal);
  const unsigned largest = __reduce_max_sync(lanes, static_cast<unsigned>(i % 32));
  const bool right = __all_sync(lanes, equal) != 0 && largest == 31 && __popc(alike) == 4 &&
                     __any_sync(lanes, above != 0) != 0 &&
                     __reduce_add_sync(lanes, 1) == (kWrong ? 31 : 32);
  if (i < n) out[i] = right ? x[i] : 0.0f;
}

// --- memory ------------------------------------------------------------------------------------

SCALE(tail_read) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < n) out[i] = kWrong || i + 1 < n ? x[i + 1] : 0.0f;  // FAULT
}

SCALE(tail_written) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  const float value = i < n ? x[i] : 0.0f;
  if (kWrong || i < n) out[i] = value;  // FAULT
}

SCALE(before_the_start) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < n) out[i] = x[i] - (kWrong || i > 0 ? x[i - 1] : 0.0f);  // FAULT
}

SCALE(tail_of_vectors) {
  const int i = (blockIdx.x * kThreads + threadIdx.x) * 4;
  if (i + 4 <= n) {
    for (int k = 0; k < 4; ++k) out[i + k] = x[i + k];
  } else if (!kWrong) {
    for (int k = i; k < n; ++k) out[k] = x[k];
  }
}

// Compilers move a read to where its value is used, and so behind the question.
SCALE(read_before_the_guard) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  const float value = x[kWrong ? i : min(i, n - 1)];  // FAULT
  if (i < n) out[i] = value;
}

struct Four {
  float x, y, z, w;
};

SCALE(vector_before_the_guard) {
  const int i = (blockIdx.x * kThreads + threadIdx.x) * 4;
  const Four four = *reinterpret_cast<const Four*>(x + (kWrong || i + 4 <= n ? i : 0));  // FAULT
  const float sum = i < n ? four.x + four.y + four.z + four.w : 0.0f;
  for (int k = i; k < min(n, i + 4); ++k) out[k] = sum;
}

SCALE(misaligned_vector) {
  // From the end on, where an odd rest is the first vector's address.
  const int i = n - 4 * static_cast<int>(blockIdx.x * kThreads + threadIdx.x + 1);
  const bool aligned = reinterpret_cast<uintptr_t>(x + i) % 16 == 0;
  if ((kWrong || aligned) && i >= 0) {
    const float4 four = *reinterpret_cast<const float4*>(x + i);  // FAULT
    *reinterpret_cast<float4*>(out + i) = four;
  } else {
    for (int k = max(i, 0); k < i + 4; ++k) out[k] = x[k];
  }
}

SCALE(short_index) {
  using Index = std::conditional_t<kWrong, short, int>;
  const Index i = static_cast<Index>(blockIdx.x * kThreads + threadIdx.x);
  if (i < n) out[i] = x[i];  // FAULT
}

SCALE(overflowing_index) {
  using Index = std::conditional_t<kWrong, int, int64_t>;
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= n) return;
  const Index hashed = static_cast<Index>(i) * 2654435 * 7;  // FAULT
  out[i] = hashed >= 0 ? x[i] : 0.0f;
}

SCALE(shared_past_the_end) {
  __shared__ float tile[kThreads + (kWrong ? 0 : 1)];
  const int first = blockIdx.x * kThreads, i = first + threadIdx.x;
  if (threadIdx.x == 0) tile[kThreads] = 0;  // FAULT
  tile[threadIdx.x] = i < n ? x[i] : 0.0f;
  __syncthreads();
  if (i < n) out[i] = tile[threadIdx.x];
}

SCALE(dynamic_shared_too_small) {
  extern __shared__ float tile[];
  const int i = blockIdx.x * kThreads + threadIdx.x;
  tile[threadIdx.x] = i < n ? x[i] : 0.0f;  // FAULT
  __syncthreads();
  if (i < n) out[i] = tile[threadIdx.x];
}

SCALE(wrong_stride) {
  __shared__ float tile[8][12 + 1];
  const int i = threadIdx.x;
  tile[i / 12][i % 12] = i < n ? x[i] : 0.0f;
  __syncthreads();
  const float* flat = &tile[0][0];
  if (i < n) out[i] = flat[i / 12 * (kWrong ? 12 : 13) + i % 12];  // FAULT
  for (int at = i + kThreads; at < n; at += kThreads) out[at] = x[at];
}

SCALE(padding_not_cleared) {
  __shared__ float tile[kThreads];
  const int i = threadIdx.x;
  if (!kWrong || i < n) tile[i] = i < n ? x[i] : 0.0f;
  __syncthreads();
  float sum = 0;
  for (int k = 0; k < kThreads; ++k) sum += tile[k];  // FAULT
  for (int at = i; at < n; at += kThreads) out[at] = sum;
}

SCALE(result_not_cleared) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < n && !kWrong) out[i] = 0;
  if (i < n) out[i] += x[i];  // FAULT
}

SCALE(argument_written) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < n) out[i] = x[i];
  if (kWrong && i < n) const_cast<float*>(x)[i] = 0;  // FAULT
}

// --- several threads, several blocks -----------------------------------------------------------

SCALE(sum_without_atomics) {
  __shared__ float total;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += kThreads) {
    if (kWrong) {
      total += x[i];  // FAULT
    } else {
      atomicAdd(&total, x[i]);
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += kThreads) out[i] = total;
}

SCALE(blocks_in_order) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i == 0) out[0] = x[0];
  if (i > 0 && i < n) out[i] = kWrong ? out[i % kThreads] : x[i % kThreads];  // FAULT
}

__device__ unsigned blocks_done;

template <bool kWrong>
__global__ void last_block(const float* x, float* out, float* sums, int n) {
  __shared__ bool is_last;
  float sum = 0;
  if (threadIdx.x == 0) {
    for (int i = blockIdx.x * kThreads; i < min(n, (int(blockIdx.x) + 1) * kThreads); ++i)
      sum += x[i];
    sums[blockIdx.x] = sum;
    if constexpr (!kWrong) __threadfence();
    is_last = atomicAdd(&blocks_done, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last) return;
  if (threadIdx.x == 0) blocks_done = 0;
  for (int i = threadIdx.x; i < n; i += kThreads) {
    float total = 0;
    for (unsigned block = 0; block < gridDim.x; ++block) total += sums[block];  // FAULT
    out[i] = total;
  }
}

SCALE(same_flag_by_all) {
  __shared__ int any;
  if (threadIdx.x == 0) any = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += kThreads) {
    if (x[i] > 0.5f) any = kWrong ? i : 1;  // FAULT
  }
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += kThreads) out[i] = any != 0 ? 1.0f : 0.0f;
}

// --- host and device ---------------------------------------------------------------------------

__global__ void follow(const int64_t* sizes, const float* x, float* out) {
  const int i = threadIdx.x + blockIdx.x * blockDim.x;
  const int64_t n = *sizes;  // FAULT host_pointer
  if (i < n) out[i] = x[i];
}
__global__ void take(int64_t n, const float* x, float* out) {
  const int i = threadIdx.x + blockIdx.x * blockDim.x;
  if (i < n) out[i] = x[i];
}

}  // namespace

#define RUN(name, grid, block, shared)                                           \
  if (a.fault == #name) {                                                        \
    if (a.wrong) {                                                               \
      name<true><<<grid, block, shared, stream>>>(a.x.data(), a.out.data(), n);  \
    } else {                                                                     \
      name<false><<<grid, block, shared, stream>>>(a.x.data(), a.out.data(), n); \
    }                                                                            \
  }

void faulty(const opsmith::Context& ctx, const cuda_faults::faulty_args& a) {
  const int n = static_cast<int>(a.N);
  const cudaStream_t stream = opsmith::cuda_stream(ctx);
  const unsigned blocks = opsmith::blocks_for(n, kThreads);
  RUN(no_barrier, blocks, kThreads, 0)
  RUN(no_barrier_between_steps, 1, kThreads, 0)
  RUN(shared_memory_used_again, 1, kThreads, 0)
  RUN(half_of_a_word_written, blocks, kThreads, 0)
  RUN(barrier_in_a_branch, blocks, kThreads, 0)
  RUN(return_before_barrier, blocks, kThreads, 0)
  RUN(two_barriers, 1, kThreads, 0)
  RUN(warp_without_barrier, 1, 32, 0)
  RUN(shuffle_in_a_branch, 1, 32, 0)
  RUN(mask_without_own_lane, 1, 32, 0)
  RUN(lanes_in_two_shuffles, 1, 32, 0)
  RUN(active_mask_taken_for_all, 1, 32, 0)
  RUN(lane_left_out_of_votes, 1, kThreads, 0)
  RUN(tail_read, blocks, kThreads, 0)
  RUN(tail_written, blocks, kThreads, 0)
  RUN(before_the_start, blocks, kThreads, 0)
  RUN(tail_of_vectors, blocks, kThreads, 0)
  RUN(read_before_the_guard, blocks, kThreads, 0)
  RUN(vector_before_the_guard, blocks, kThreads, 0)
  RUN(misaligned_vector, blocks, kThreads, 0)
  RUN(short_index, blocks, kThreads, 0)
  RUN(overflowing_index, blocks, kThreads, 0)
  RUN(shared_past_the_end, blocks, kThreads, 0)
  RUN(dynamic_shared_too_small, blocks, kThreads, (kThreads - (a.wrong ? 1 : 0)) * sizeof(float))
  RUN(wrong_stride, 1, kThreads, 0)
  RUN(padding_not_cleared, 1, kThreads, 0)
  RUN(result_not_cleared, blocks, kThreads, 0)
  RUN(argument_written, blocks, kThreads, 0)
  RUN(sum_without_atomics, 1, kThreads, 0)
  RUN(blocks_in_order, blocks, kThreads, 0)
  RUN(same_flag_by_all, 1, kThreads, 0)
  if (a.fault == "last_block") {
    const auto sums = ctx.scratch<float>(blocks);
    const auto kernel = a.wrong ? last_block<true> : last_block<false>;
    opsmith::launch(ctx, kernel, blocks, kThreads, 0, a.x.data(), a.out.data(), sums.data(), n);
  }
  if (a.fault == "host_pointer") {
    if (a.wrong) {
      follow<<<blocks, kThreads, 0, stream>>>(a.x.sizes().data(), a.x.data(), a.out.data());
    } else {
      take<<<blocks, kThreads, 0, stream>>>(a.N, a.x.data(), a.out.data());
    }
  }
  if (a.fault == "read_by_host") {
    take<<<blocks, kThreads, 0, stream>>>(a.N, a.x.data(), a.out.data());
    if (a.wrong && a.x[0] == 0.5f) return;  // FAULT read_by_host
  }
  if (a.fault == "grid_of_nothing") {
    if (!a.wrong && n == 0) return;
    take<<<a.wrong ? 0 : blocks, kThreads, 0, stream>>>(a.N, a.x.data(), a.out.data());  // FAULT
  }
  if (a.fault == "block_too_large") {
    take<<<1, a.wrong ? 2048 : 1024, 0, stream>>>(a.N, a.x.data(), a.out.data());  // FAULT
  }
  if (a.fault == "copy_past_the_end") {
    const size_t bytes = (n + (a.wrong ? 1 : 0)) * sizeof(float);
    cudaMemcpyAsync(a.out.data(), a.x.data(), bytes, cudaMemcpyDeviceToDevice, stream);  // FAULT
  }
}
OPSMITH_KERNEL(cuda_faults, faulty, cuda)
