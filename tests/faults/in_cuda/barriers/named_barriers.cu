// Faults around barriers of some threads of a block, in inline PTX; see ../faults.cu for the form.
#include "named_barriers.h"

#include <opsmith/cuda.h>

#include <string>

namespace {

constexpr int kThreads = 96, kWarp = 32;
enum Name { kAll, kFull, kEmpty };

// As CUTLASS's cutlass::arch::NamedBarrier has them.
__device__ __forceinline__ void sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" : : "r"(id), "r"(threads) : "memory");  // FAULT waits counts
}
__device__ __forceinline__ void arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" : : "r"(id), "r"(threads) : "memory");  // FAULT arrives
}

enum class Slip {
  none,
  arrives_only,   // who consumes does not wait
  not_awaited,    // who produces fills without waiting for what consumers have read
  arrives_early,  // before what it reads
  too_many,       // threads are expected
  too_few,
  two_counts,
  two_names,
  no_arrival,
};

// A warp turns parts of 64 numbers for two others, which copy them: a buffer for one round.
template <Slip slip>
__device__ void produce_and_consume(const float* x, float* out, int n) {
  constexpr int kPart = 64;
  __shared__ float buffer[kPart];
  const int thread = threadIdx.x, lane = thread % kWarp;
  const int full = slip == Slip::too_many ? kThreads + kWarp : kThreads;
  if (thread < kWarp) {
    for (int first = 0; first < n; first += kPart) {
      const int count = min(kPart, n - first);
      if (first != 0 && slip != Slip::not_awaited) sync(kEmpty, kThreads);
      for (int i = lane; i < count; i += kWarp) {
        buffer[i] = x[first + count - 1 - i];  // FAULT buffer
      }
      arrive(slip == Slip::two_names ? kEmpty : kFull,
             slip == Slip::two_counts ? kThreads - kWarp : full);
    }
  } else {
    for (int first = 0; first < n; first += kPart) {
      const int i = first + thread - kWarp;
      if constexpr (slip == Slip::arrives_only) {
        arrive(kFull, kThreads);
      } else if (thread >= 2 * kWarp && slip == Slip::too_few) {
        return;
      } else {
        sync(kFull, full);
      }
      const bool more = first + kPart < n;
      if (slip == Slip::arrives_early && more) arrive(kEmpty, kThreads);
      if (i < n) out[i] = buffer[i - first];  // FAULT buffer
      if (slip != Slip::arrives_early && slip != Slip::no_arrival && more) {
        arrive(kEmpty, kThreads);
      }
    }
  }
}

#define NAMED(name)      \
  template <bool kWrong> \
  __global__ void name(const float* x, float* out, int n)
#define CONSUMED(name, slip) \
  NAMED(name) { produce_and_consume<kWrong ? Slip::slip : Slip::none>(x, out, n); }
CONSUMED(arrival_taken_for_waiting, arrives_only)
CONSUMED(buffer_filled_again_at_once, not_awaited)
CONSUMED(arrival_before_the_last_read, arrives_early)
CONSUMED(barrier_for_more_threads, too_many)
CONSUMED(a_warp_does_not_come, too_few)
CONSUMED(counts_that_differ, two_counts)
CONSUMED(arrival_at_another_barrier, two_names)
CONSUMED(consumers_never_arrive, no_arrival)

// Two of three warps turn 64 numbers.
template <int id, int threads>
__device__ void turn_by_two(const float* x, float* out, int n) {
  __shared__ float tile[64];
  const int i = threadIdx.x;
  if (i >= 64) return;
  tile[i] = i < n ? x[i] : 0;  // FAULT tile
  sync(id, threads);
  if (i < n) out[i] = tile[n - 1 - i];  // FAULT tile
}
NAMED(count_of_no_whole_warps) { turn_by_two<1, kWrong ? 60 : 64>(x, out, n); }
NAMED(count_for_one_warp) { turn_by_two<1, kWrong ? 32 : 64>(x, out, n); }
NAMED(barrier_16) { turn_by_two<kWrong ? 16 : 15, 64>(x, out, n); }

// Two warps meet, and then all.
NAMED(barrier_0_for_some) {
  __shared__ float tile[kThreads];
  const int i = threadIdx.x;
  if (i < n) tile[i] = x[i];
  if (i < 64) {
    asm volatile("barrier.sync.aligned %0, 64;" : : "n"(kWrong ? 0 : 3) : "memory");  // FAULT
  }
  asm volatile("bar.sync 0;" ::: "memory");  // FAULT
  if (i < n) out[i] = tile[n - 1 - i];
  __syncthreads();
}

// All meet, each warp at its own instruction.
NAMED(warps_at_two_barriers) {
  __shared__ float tile[kThreads];
  const int i = threadIdx.x;
  if (i < n) tile[i] = x[i];  // FAULT
  if (i < 32) {
    asm volatile("barrier.cta.sync 5;" ::: "memory");  // FAULT
  } else {
    asm volatile("barrier.sync %0;" : : "r"(kWrong ? 6 : 5) : "memory");  // FAULT
  }
  if (i < n) out[i] = tile[n - 1 - i];  // FAULT
}

// Lanes of a warp part before the barrier, which is for whole warps.
NAMED(barrier_for_half_a_warp) {
  __shared__ float tile[64];
  const int i = threadIdx.x;
  if (i < 64) tile[i] = i < n ? x[i] : 0;
  if (i < (kWrong ? 48 : 64)) {
    asm volatile("bar.sync 1, 64;" ::: "memory");  // FAULT
  } else if (kWrong && i < 64) {
    asm volatile("bar.sync 1, 64;" ::: "memory");  // FAULT
  }
  if (i < n) out[i] = tile[n - 1 - i];
}

using Kernel = void (*)(const float*, float*, int);

template <bool kWrong>
void launch(const std::string& name, cudaStream_t stream, const float* x, float* out, int n) {
  struct {
    const char* name;
    Kernel kernel;
  } const table[] = {
#define ROW(name) {#name, name<kWrong>}
      ROW(arrival_taken_for_waiting),
      ROW(buffer_filled_again_at_once),
      ROW(arrival_before_the_last_read),
      ROW(barrier_for_more_threads),
      ROW(a_warp_does_not_come),
      ROW(counts_that_differ),
      ROW(arrival_at_another_barrier),
      ROW(consumers_never_arrive),
      ROW(count_of_no_whole_warps),
      ROW(count_for_one_warp),
      ROW(barrier_16),
      ROW(barrier_0_for_some),
      ROW(warps_at_two_barriers),
      ROW(barrier_for_half_a_warp),
  };
  for (const auto& row : table) {
    if (name == row.name) row.kernel<<<1, kThreads, 0, stream>>>(x, out, n);
  }
}

}  // namespace

void named_barriers(const opsmith::Context& ctx, const cuda_faults::named_barriers_args& a) {
  const auto run = a.wrong ? launch<true> : launch<false>;
  run(std::string(a.fault), opsmith::cuda_stream(ctx), a.x.data(), a.out.data(),
      static_cast<int>(a.N));
}
OPSMITH_KERNEL(cuda_faults, named_barriers, cuda)
