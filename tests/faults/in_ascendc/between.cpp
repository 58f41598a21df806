// Faults of what orders blocks, each of which copies a quarter to the result and reads the next.
#include "between.h"

#include "faults.h"

namespace {

#define QUARTER()                                                    \
  BUFFERS()                                                          \
  const int32_t each = n / 4, first = GetBlockIdx() * each;          \
  [[maybe_unused]] const int32_t next = (first + each) % (4 * each); \
  LOAD(a, x[first], each);                                           \
  THEN(MTE2, MTE3);
// With a flag behind both, so that no block writes what another one still reads.
#define NEXT_QUARTER()               \
  CrossCoreSetFlag<0, PIPE_MTE2>(7); \
  CrossCoreWaitFlag(7);              \
  THEN(MTE2, MTE3);                  \
  SAVE(out[first], b, each)

KERNEL(flag_of_blocks_not_waited_for) {
  QUARTER()
  SAVE(out[first], a, each);  // FAULT
  CrossCoreSetFlag<0, PIPE_MTE3>(0);
  if constexpr (!kWrong) CrossCoreWaitFlag(0);
  LOAD(b, out[next], each);  // FAULT
  NEXT_QUARTER();
}

KERNEL(flag_of_blocks_before_the_copy) {
  QUARTER()
  if constexpr (kWrong) CrossCoreSetFlag<0, PIPE_MTE3>(0);
  SAVE(out[first], a, each);  // FAULT
  if constexpr (!kWrong) CrossCoreSetFlag<0, PIPE_MTE3>(0);
  CrossCoreWaitFlag(0);
  LOAD(b, out[next], each);  // FAULT
  NEXT_QUARTER();
}

KERNEL(flag_of_blocks_behind_another_queue) {
  QUARTER()
  SAVE(out[first], a, each);  // FAULT
  CrossCoreSetFlag<0, kWrong ? PIPE_MTE2 : PIPE_MTE3>(0);
  CrossCoreWaitFlag(0);
  LOAD(b, out[next], each);  // FAULT
  NEXT_QUARTER();
}

KERNEL(flag_of_blocks_too_few_wait_for) {
  QUARTER()
  SAVE(out[first], a, each);
  CrossCoreSetFlag<0, PIPE_MTE3>(0);
  CrossCoreWaitFlag(0);
  LOAD(b, out[next], each);
  NEXT_QUARTER();
  if constexpr (kWrong) CrossCoreSetFlag<0, PIPE_MTE3>(3);  // FAULT
}

KERNEL(flag_of_blocks_of_another_number) {
  QUARTER()
  SAVE(out[first], a, each);
  CrossCoreSetFlag<0, PIPE_MTE3>(0);
  CrossCoreWaitFlag(kWrong ? 1 : 0);  // FAULT
  LOAD(b, out[next], each);
  NEXT_QUARTER();
}

KERNEL(flag_of_blocks_that_one_does_not_set) {
  QUARTER()
  SAVE(out[first], a, each);
  if (!kWrong || GetBlockIdx() != 2) CrossCoreSetFlag<0, PIPE_MTE3>(0);
  CrossCoreWaitFlag(0);  // FAULT
  LOAD(b, out[next], each);
  NEXT_QUARTER();
}

KERNEL(flag_of_blocks_that_does_not_exist) {
  QUARTER()
  SAVE(out[first], a, each);
  CrossCoreSetFlag<0, PIPE_MTE3>(kWrong ? 16 : 15);  // FAULT
  CrossCoreWaitFlag(15);
  LOAD(b, out[next], each);
  NEXT_QUARTER();
}

KERNEL(flag_of_blocks_without_a_scheduler) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIV_1_0);
  if constexpr (kWrong) KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
  QUARTER()
  SAVE(out[first], a, each);
  CrossCoreSetFlag<0, PIPE_MTE3>(0);  // FAULT
  CrossCoreWaitFlag(0);
  LOAD(b, out[next], each);
  NEXT_QUARTER();
}

KERNEL(all_wait_without_a_scheduler) {
  if constexpr (kWrong) KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
  QUARTER()
  SAVE(out[first], a, each);
  SyncAll();  // FAULT
  LOAD(b, out[next], each);
  NEXT_QUARTER();
}

// The first 32 floats of the result are where the blocks tell each other that they wait.
KERNEL(all_wait_in_memory_that_is_not_zero) {
  QUARTER()
  TBuf<> own;
  pipe.InitBuffer(own, 4 * 32);
  GlobalTensor<int32_t> all;
  all.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(out_at));
  if (!kWrong && GetBlockIdx() == 0) {
    Duplicate(c, 0.0f, kMost);
    THEN(V, MTE3);
    SAVE(out, c, n);
  }
  SyncAll();
  SyncAll(all, own.Get<int32_t>());  // FAULT
  SAVE(out[first], a, each);
  SyncAll();
  LOAD(b, out[next], each);
  NEXT_QUARTER();
}

KERNEL(all_wait_in_too_small_a_buffer) {
  QUARTER()
  TBuf<> own;
  pipe.InitBuffer(own, kWrong ? 32 : 4 * 32);
  GlobalTensor<int32_t> all;
  all.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(out_at));
  if (GetBlockIdx() == 0) {
    Duplicate(c, 0.0f, kMost);
    THEN(V, MTE3);
    SAVE(out, c, n);
  }
  SyncAll();
  SyncAll(all, own.Get<int32_t>());  // FAULT
  SAVE(out[first], a, each);
  SyncAll();
  LOAD(b, out[next], each);
  NEXT_QUARTER();
}

// Each but the first four has nothing to do.
KERNEL(more_blocks_than_cores) {
  BUFFERS()
  const int32_t each = n / 4, first = GetBlockIdx() * each, next = (first + each) % (4 * each);
  if (GetBlockIdx() < 4) LOAD(a, x[first], each);
  THEN(MTE2, MTE3);
  if (GetBlockIdx() < 4) SAVE(out[first], a, each);
  SyncAll();  // FAULT
  if (GetBlockIdx() >= 4) {
    SyncAll();
    return;
  }
  LOAD(b, out[next], each);
  SyncAll();
  THEN(MTE2, MTE3);
  SAVE(out[first], b, each);
}

template <bool kWrong>
void launch(const std::string& name, aclrtStream stream, GM_ADDR x, GM_ADDR out, int32_t n) {
#define ROW(name) {#name, name<kWrong>, 4}
  const Row table[] = {
      ROW(flag_of_blocks_not_waited_for),
      ROW(flag_of_blocks_before_the_copy),
      ROW(flag_of_blocks_behind_another_queue),
      ROW(flag_of_blocks_too_few_wait_for),
      ROW(flag_of_blocks_of_another_number),
      ROW(flag_of_blocks_that_one_does_not_set),
      ROW(flag_of_blocks_that_does_not_exist),
      ROW(flag_of_blocks_without_a_scheduler),
      ROW(all_wait_without_a_scheduler),
      ROW(all_wait_in_memory_that_is_not_zero),
      ROW(all_wait_in_too_small_a_buffer),
      {"more_blocks_than_cores", more_blocks_than_cores<kWrong>, kWrong ? 49 : 48},
  };
  for (const Row& row : table) {
    if (name == row.name) row.kernel<<<row.blocks, nullptr, stream>>>(x, out, n);
  }
}

}  // namespace

void between(const opsmith::Context& ctx, const ascendc_faults::between_args& a) {
  const auto run = a.wrong ? launch<true> : launch<false>;
  run(std::string(a.fault), opsmith::npu_stream(ctx), opsmith::gm(a.x), opsmith::gm(a.out),
      static_cast<int32_t>(a.N));
}
OPSMITH_KERNEL(ascendc_faults, between, npu)
