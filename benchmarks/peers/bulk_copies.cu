// Faults with bulk copies that an mbarrier waits for.
// The form is that of tests/faults/in_cuda/faults.cu.
#include "bulk_copies.h"

#include <opsmith/cuda.h>

#include <cstdint>

namespace {

constexpr int kThreads = 64;

#define KERNEL(name)     \
  template <bool kWrong> \
  __global__ void name(const float* x, float* out, int n)

__device__ unsigned shared_address(const void* data) {
  return static_cast<unsigned>(__cvta_generic_to_shared(data));
}

__device__ void begin(uint64_t* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
}
__device__ void expect(uint64_t* barrier, int bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}
__device__ void copy(float* to, const float* from, int bytes, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(to)),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}
__device__ void wait(uint64_t* barrier, int parity) {
  asm volatile(
      "{\n"
      "  .reg .pred complete;\n"
      "WAIT_%=:\n"
      "  mbarrier.try_wait.parity.shared::cta.b64 complete, [%0], %1;\n"
      "  @complete bra DONE_%=;\n"
      "  bra WAIT_%=;\n"
      "DONE_%=:\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

enum class Slip {
  none,
  not_waited_for,
  too_many_bytes,
  too_few_bytes,
  not_initialised,
  other_parity
};

template <Slip slip>
__device__ void copy_by_bulk(const float* x, float* out) {
  __shared__ __align__(128) float tile[kThreads];
  __shared__ uint64_t arrived;
  constexpr int bytes = kThreads * sizeof(float);
  constexpr int awaited = slip == Slip::too_many_bytes  ? bytes + 16
                          : slip == Slip::too_few_bytes ? bytes - 16
                                                        : bytes;
  if (threadIdx.x == 0) {
    begin(&arrived);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  if constexpr (slip != Slip::not_initialised) __syncthreads();
  if (threadIdx.x == 0) {
    expect(&arrived, awaited);
    copy(tile, x, bytes, &arrived);
  }
  if constexpr (slip != Slip::not_waited_for) wait(&arrived, slip == Slip::other_parity ? 1 : 0);
  out[threadIdx.x] = tile[kThreads - 1 - threadIdx.x];
}

#define BULK(name, slip) \
  KERNEL(name) { copy_by_bulk<kWrong ? Slip::slip : Slip::none>(x, out); }
BULK(bulk_copy_not_waited_for, not_waited_for)
BULK(more_bytes_awaited_than_copied, too_many_bytes)
BULK(fewer_bytes_awaited_than_copied, too_few_bytes)
BULK(waited_for_before_it_is_initialised, not_initialised)
BULK(waited_for_the_phase_before, other_parity)

}  // namespace

#define RUN(name, grid)                                                                \
  if (a.fault == #name) {                                                              \
    const auto kernel = a.wrong ? name<true> : name<false>;                            \
    kernel<<<grid, kThreads, 0, opsmith::cuda_stream(ctx)>>>(a.x.data(), a.out.data(), \
                                                             static_cast<int>(a.N));   \
  }

void bulk_copies(const opsmith::Context& ctx, const peers::bulk_copies_args& a) {
  RUN(bulk_copy_not_waited_for, 1);
  RUN(more_bytes_awaited_than_copied, 1);
  RUN(fewer_bytes_awaited_than_copied, 1);
  RUN(waited_for_before_it_is_initialised, 1);
  RUN(waited_for_the_phase_before, 1);
}
OPSMITH_KERNEL(peers, bulk_copies, cuda)
