// Faults in asynchronous copies to shared memory, and in pipelines; see faults.cu for the form.
#include "copies.h"

#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda_pipeline.h>
#include <opsmith/cuda.h>
#include <cuda/pipeline>

#include <string>

namespace {

constexpr int kThreads = 96;

#define COPY(name)       \
  template <bool kWrong> \
  __global__ void name(const float* x, float* out, int n)

__device__ void copy_one(float* tile, const float* x, int n) {
  const int i = threadIdx.x;
  __pipeline_memcpy_async(&tile[i], &x[min(i, n - 1)], sizeof(float), i < n ? 0 : sizeof(float));
}

COPY(copy_not_waited_for) {
  __shared__ float tile[kThreads];
  copy_one(tile, x, n);
  __pipeline_commit();
  if constexpr (!kWrong) __pipeline_wait_prior(0);
  __syncthreads();
  if (int(threadIdx.x) < n) out[threadIdx.x] = tile[n - 1 - threadIdx.x];  // FAULT
}

COPY(copy_not_committed) {
  __shared__ float tile[kThreads];
  copy_one(tile, x, n);
  if constexpr (!kWrong) __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  if (int(threadIdx.x) < n) out[threadIdx.x] = tile[threadIdx.x];  // FAULT
}

COPY(copy_waited_for_by_its_thread_alone) {
  __shared__ float tile[kThreads];
  copy_one(tile, x, n);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  if constexpr (!kWrong) __syncthreads();
  if (int(threadIdx.x) < n) out[threadIdx.x] = tile[n - 1 - threadIdx.x];  // FAULT
}

COPY(second_stage_read_early) {
  __shared__ float tile[2][kThreads];
  for (int stage = 0; stage < 2; ++stage) {
    copy_one(tile[stage], x + stage * kThreads, n - stage * kThreads);
    __pipeline_commit();
  }
  __pipeline_wait_prior(1);
  out[threadIdx.x] = tile[0][threadIdx.x];
  if constexpr (!kWrong) __pipeline_wait_prior(0);
  const int i = kThreads + threadIdx.x;
  if (i < n) out[i] = tile[1][threadIdx.x];  // FAULT
}

COPY(copy_of_a_group_not_waited_for) {
  __shared__ float tile[kThreads];
  const auto block = cooperative_groups::this_thread_block();
  cooperative_groups::memcpy_async(block, tile, x, n * sizeof(float));
  if constexpr (kWrong) {
    block.sync();
  } else {
    cooperative_groups::wait(block);
  }
  if (int(threadIdx.x) < n) out[threadIdx.x] = tile[n - 1 - threadIdx.x];  // FAULT
}

// --- pipelines ---------------------------------------------------------------------------------

enum class Slip { none, no_wait, no_barrier, no_release, one_stage_more, unaligned };

// Each thread copies for itself, a stage ahead.
template <Slip slip>
__device__ void in_stages_of_a_thread(const float* x, float* out, int n) {
  __shared__ float tiles[2][kThreads];
  auto pipe = cuda::make_pipeline();
  const int rounds = (n + kThreads - 1) / kThreads;
  const auto fetch = [&](int round) {
    const int i = round * kThreads + threadIdx.x;
    pipe.producer_acquire();
    if (i < n) cuda::memcpy_async(&tiles[round % 2][threadIdx.x], x + i, sizeof(float), pipe);
    pipe.producer_commit();
  };
  fetch(0);
  for (int round = 0; round < rounds; ++round) {
    if (round + 1 < rounds) fetch(round + 1);
    if constexpr (slip == Slip::one_stage_more) {
      cuda::pipeline_consumer_wait_prior<1>(pipe);
    } else if constexpr (slip != Slip::no_wait) {
      pipe.consumer_wait();
    }
    if constexpr (slip != Slip::no_barrier) __syncthreads();
    const int first = round * kThreads, count = min(kThreads, n - first);
    const int other = count - 1 - threadIdx.x;
    if (other >= 0) out[first + threadIdx.x] = tiles[round % 2][other];  // FAULT thread_stage
    pipe.consumer_release();
    __syncthreads();
  }
}
#define OF_A_THREAD(name, slip) \
  COPY(name) { in_stages_of_a_thread<kWrong ? Slip::slip : Slip::none>(x, out, n); }
OF_A_THREAD(stage_of_a_thread_not_waited_for, no_wait)
OF_A_THREAD(stage_of_a_thread_without_barrier, no_barrier)
OF_A_THREAD(last_stage_waited_for_too_little, one_stage_more)

// The block copies together, and waits for what all have copied.
template <Slip slip>
__device__ void in_stages_of_a_block(const float* x, float* out, int n) {
  constexpr int kStages = 2;
  __shared__ float tiles[kStages][kThreads];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, kStages> state;
  const auto block = cooperative_groups::this_thread_block();
  auto pipe = cuda::make_pipeline(block, &state);
  const int rounds = (n + kThreads - 1) / kThreads;
  const auto count = [&](int round) { return min(kThreads, n - round * kThreads); };
  for (int round = 0, fetched = 0; round < rounds; ++round) {
    for (; fetched < rounds && fetched < round + kStages; ++fetched) {
      pipe.producer_acquire();  // FAULT block_acquires
      const float* from = x + fetched * kThreads;
      const cuda::aligned_size_t<4> bytes(count(fetched) * sizeof(float));
      float* to = tiles[slip == Slip::one_stage_more ? 0 : fetched % kStages];
      cuda::memcpy_async(block, to, from, bytes, pipe);  // FAULT block_copies
      pipe.producer_commit();
    }
    if constexpr (slip != Slip::no_wait) pipe.consumer_wait();
    const int first = round * kThreads, other = count(round) - 1 - threadIdx.x;
    if (other >= 0) out[first + threadIdx.x] = tiles[round % kStages][other];  // FAULT block_stage
    if constexpr (slip != Slip::no_release) pipe.consumer_release();
  }
}
#define OF_A_BLOCK(name, slip) \
  COPY(name) { in_stages_of_a_block<kWrong ? Slip::slip : Slip::none>(x, out, n); }
OF_A_BLOCK(stage_of_a_block_not_waited_for, no_wait)
OF_A_BLOCK(stage_never_released, no_release)
OF_A_BLOCK(one_buffer_for_two_stages, one_stage_more)

// One warp copies, and two others take what it has copied.
template <Slip slip>
__device__ void by_a_warp_for_others(const float* x, float* out, int n) {
  constexpr int kStages = 2, kCopying = 32, kOthers = kThreads - kCopying;
  __shared__ float tiles[kStages][kOthers];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, kStages> state;
  const auto block = cooperative_groups::this_thread_block();
  const int lane = threadIdx.x;
  const bool copies = lane < kCopying;
  const auto role = copies ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
  auto pipe = cuda::make_pipeline(block, &state, role);
  const int rounds = (n + kOthers - 1) / kOthers;
  for (int round = 0; round < rounds; ++round) {
    const int first = round * kOthers, count = min(kOthers, n - first);
    float* tile = tiles[round % kStages];
    if (copies) {
      if constexpr (slip != Slip::no_barrier) pipe.producer_acquire();
      for (int i = lane; i < count; i += kCopying) {
        cuda::memcpy_async(tile + i, x + first + i, sizeof(float), pipe);  // FAULT warp_copies
      }
      pipe.producer_commit();  // FAULT warp_copies
    } else {
      if constexpr (slip != Slip::no_wait) pipe.consumer_wait();
      const int i = lane - kCopying;
      if constexpr (slip == Slip::no_release) pipe.consumer_release();
      if (i < count) out[first + i] = tile[count - 1 - i];  // FAULT warp_stage warp_copies
      if constexpr (slip != Slip::no_release) pipe.consumer_release();
    }
  }
}
#define BY_A_WARP(name, slip) \
  COPY(name) { by_a_warp_for_others<kWrong ? Slip::slip : Slip::none>(x, out, n); }
BY_A_WARP(stage_of_others_not_waited_for, no_wait)
BY_A_WARP(stage_filled_before_it_is_free, no_barrier)
BY_A_WARP(stage_released_before_it_is_read, no_release)

COPY(size_of_another_alignment) {
  __shared__ __align__(16) float tile[kThreads];
  auto pipe = cuda::make_pipeline();
  const auto block = cooperative_groups::this_thread_block();
  pipe.producer_acquire();
  constexpr int kAligned = kWrong ? 16 : 4;
  const cuda::aligned_size_t<kAligned> bytes(n * sizeof(float));
  cuda::memcpy_async(block, tile, x, bytes, pipe);  // FAULT
  pipe.producer_commit();
  pipe.consumer_wait();
  __syncthreads();
  if (int(threadIdx.x) < n) out[threadIdx.x] = tile[threadIdx.x];
  pipe.consumer_release();
}

using Kernel = void (*)(const float*, float*, int);

template <bool kWrong>
void launch(const std::string& name, cudaStream_t stream, const float* x, float* out, int n) {
  struct {
    const char* name;
    Kernel kernel;
  } const table[] = {
#define ROW(name) {#name, name<kWrong>}
      ROW(copy_not_waited_for),
      ROW(copy_not_committed),
      ROW(copy_waited_for_by_its_thread_alone),
      ROW(second_stage_read_early),
      ROW(copy_of_a_group_not_waited_for),
      ROW(stage_of_a_thread_not_waited_for),
      ROW(stage_of_a_thread_without_barrier),
      ROW(last_stage_waited_for_too_little),
      ROW(stage_of_a_block_not_waited_for),
      ROW(stage_never_released),
      ROW(one_buffer_for_two_stages),
      ROW(stage_of_others_not_waited_for),
      ROW(stage_filled_before_it_is_free),
      ROW(stage_released_before_it_is_read),
      ROW(size_of_another_alignment),
  };
  for (const auto& row : table) {
    if (name == row.name) row.kernel<<<1, kThreads, 0, stream>>>(x, out, n);
  }
}

}  // namespace

void copies(const opsmith::Context& ctx, const cuda_faults::copies_args& a) {
  const auto run = a.wrong ? launch<true> : launch<false>;
  run(std::string(a.fault), opsmith::cuda_stream(ctx), a.x.data(), a.out.data(),
      static_cast<int>(a.N));
}
OPSMITH_KERNEL(cuda_faults, copies, cuda)
