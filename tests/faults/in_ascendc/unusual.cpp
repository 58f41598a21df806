// Right kernels of unusual form: none of them is to be flagged.
#include "unusual.h"

#include "faults.h"

namespace {

#undef KERNEL
#define KERNEL(name) __global__ __aicore__ void name(GM_ADDR x_at, GM_ADDR out_at, int32_t n)

// Two buffers and flags that are set before the loop, so that each round waits for the one before.
KERNEL(ping_and_pong) {
  BUFFERS()
  const LocalTensor<float> pair[2] = {a, b};
  SetFlag<HardEvent::MTE3_MTE2>(EVENT_ID0);
  SetFlag<HardEvent::MTE3_MTE2>(EVENT_ID1);
  for (int32_t at = 0, round = 0; at < n; at += 16, ++round) {
    const event_t id = round % 2 == 0 ? EVENT_ID0 : EVENT_ID1;
    const int32_t count = n - at < 16 ? n - at : 16;
    WaitFlag<HardEvent::MTE3_MTE2>(id);
    LOAD(pair[id], x[at], count);
    SetFlag<HardEvent::MTE2_MTE3>(id);
    WaitFlag<HardEvent::MTE2_MTE3>(id);
    SAVE(out[at], pair[id], count);
    SetFlag<HardEvent::MTE3_MTE2>(id);
  }
  WaitFlag<HardEvent::MTE3_MTE2>(EVENT_ID0);
  WaitFlag<HardEvent::MTE3_MTE2>(EVENT_ID1);
}

// One queue from the copy in to the copy out.
KERNEL(bound_queue) {
  TENSORS()
  TQueBind<TPosition::VECIN, TPosition::VECOUT, 1> through;
  pipe.InitBuffer(through, 2, kBytes);
  for (int32_t at = 0; at < n; at += 32) {
    const int32_t count = n - at < 32 ? n - at : 32;
    LocalTensor<float> tile = through.AllocTensor<float>();
    LOAD(tile, x[at], count);
    through.EnQue(tile);
    tile = through.DeQue<float>();
    SAVE(out[at], tile, count);
    through.FreeTensor(tile);
  }
}

// The depth 0 is for tensors that are given to the queue.
KERNEL(tensors_in_place) {
  TENSORS()
  TQue<TPosition::VECIN, 0> ins;
  TQue<TPosition::VECOUT, 0> outs;
  pipe.InitBuffer(ins, 1, kBytes);
  pipe.InitBuffer(outs, 1, kBytes);
  LocalTensor<float> in, result;
  ins.AllocTensor(in);
  LOAD(in, x, n);
  ins.EnQue(in);
  ins.DeQue(in);
  outs.AllocTensor(result);
  Adds(result, in, 0.0f, n);
  ins.FreeTensor(in);
  outs.EnQue(result);
  outs.DeQue(result);
  SAVE(out, result, n);
  outs.FreeTensor(result);
}

// Two tensors wait in a queue of depth two.
KERNEL(fetched_ahead) {
  TENSORS()
  TQue<TPosition::VECIN, 2> ins;
  TQue<TPosition::VECOUT, 1> outs;
  pipe.InitBuffer(ins, 2, kBytes);
  pipe.InitBuffer(outs, 1, kBytes);
  const int32_t half = n / 2 / 8 * 8;
  for (const int32_t at : {0, half}) {
    LocalTensor<float> in = ins.AllocTensor<float>();
    LOAD(in, x[at], at == 0 ? half : n - half);
    ins.EnQue(in);
  }
  for (const int32_t at : {0, half}) {
    const int32_t count = at == 0 ? half : n - half;
    LocalTensor<float> in = ins.DeQue<float>(), result = outs.AllocTensor<float>();
    Muls(result, in, 1.0f, count);
    ins.FreeTensor(in);
    outs.EnQue(result);
    result = outs.DeQue<float>();
    SAVE(out[at], result, count);
    outs.FreeTensor(result);
  }
}

// A queue between two instructions of the vector unit.
KERNEL(queue_of_intermediates) {
  QUEUES()
  TQue<TPosition::VECCALC, 1> between;
  pipe.InitBuffer(between, 1, kBytes);
  BY_QUEUES(LocalTensor<float> middle = between.AllocTensor<float>(); Muls(middle, in, 2.0f, n);
            between.EnQue(middle); middle = between.DeQue<float>(); Muls(result, middle, 0.5f, n);
            between.FreeTensor(middle))
}

// Parts of a buffer are used side by side.
KERNEL(parts_of_a_buffer) {
  TENSORS()
  TBuf<> whole;
  pipe.InitBuffer(whole, 2 * kBytes);
  const auto first = whole.GetWithOffset<float>(kMost, 0);
  const auto second = whole.GetWithOffset<float>(kMost, kBytes);
  LOAD(first, x, 32);
  THEN(MTE2, V);
  Muls(second, first, 2.0f, 32);
  LOAD(first[64], x, 8);
  THEN(V, MTE2);
  PipeBarrier<PIPE_MTE2>();
  LOAD(first, x, n);
  PipeBarrier<PIPE_ALL>();
  SAVE(out, first, n);
}

// The pipe is given back and used again.
KERNEL(pipe_used_again) {
  TENSORS()
  for (int32_t round = 0; round < 2; ++round) {
    TBuf<> own;
    pipe.InitBuffer(own, 180 * 1024);
    const auto tile = own.Get<float>();
    LOAD(tile, x, n);
    THEN(MTE2, MTE3);
    SAVE(out, tile, n);
    pipe.Reset();
  }
}

// Instructions write over their own sources.
KERNEL(over_its_source) {
  BUFFERS()
  LOAD(a, x, n);
  THEN(MTE2, V);
  Add(a, a, a, n);
  Muls(a, a, 0.5f, 64, 2, {1, 1, 8, 8});
  THEN(V, MTE3);
  SAVE(out, a, n);
}

// A tail by a mask of bits, and a repeat that reads one block again and again.
KERNEL(masks_and_steps) {
  BUFFERS()
  LOAD(a, x, n);
  THEN(MTE2, V);
  Duplicate(b, 0.0f, 64, 2, 1, 8);
  const uint64_t odd[2] = {0xAAAAAAAAAAAAAAAA, 0}, even[2] = {0x5555555555555555, 0};
  Adds(b, a, 0.0f, odd, 2, {1, 1, 8, 8});
  Adds(b, a, 0.0f, even, 2, {1, 1, 8, 8});
  Duplicate(c, 0.0f, kMost);
  Add(b, b, c, 64, 2, {1, 1, 0, 8, 8, 0});
  SetVectorMask<float>(0, ~uint64_t{0});
  Muls<float, false>(b, b, 1.0f, MASK_PLACEHOLDER, 2, {1, 1, 8, 8});
  ResetMask();
  THEN(V, MTE3);
  SAVE(out, b, n);
}

// The scalar unit reads what instructions and copies wrote: the compiler orders these.
KERNEL(scalars_between) {
  BUFFERS()
  LOAD(a, x, n);
  const float first = a.GetValue(0);
  THEN(MTE2, V);
  Adds(b, a, -first, n);
  const float nothing = b(0);
  Adds(b, b, first + nothing, n);
  b.SetValue(0, first);
  THEN(V, MTE3);
  SAVE(out, b, n);
}

// The scalar unit waits for an instruction, and with it for the copy that this one had waited for:
// what it issues then may copy over that.
KERNEL(refilled_after_a_scalar) {
  BUFFERS()
  for (int32_t at = 0; at < n; at += 16) {
    const int32_t count = n - at < 16 ? n - at : 16;
    LOAD(a, x[at], count);
    THEN(MTE2, V);
    Adds(b[at], a, 0.0f, count);
    b.SetValue(at, b.GetValue(at));
  }
  THEN(V, MTE3);
  SAVE(out, b, n);
}

// Numbers of 16 bits, and what is rounded on the way there.
KERNEL(by_way_of_half) {
  BUFFERS()
  LOAD(a, x, n);
  THEN(MTE2, V);
  const LocalTensor<half> short_floats = own_c.Get<half>();
  Muls(b, a, 16.0f, n);
  Cast(b.ReinterpretCast<int32_t>(), b, RoundMode::CAST_FLOOR, n);
  Cast(b, b.ReinterpretCast<int32_t>(), RoundMode::CAST_NONE, n);
  Cast(short_floats, b, RoundMode::CAST_NONE, n);
  Cast(b, short_floats, RoundMode::CAST_NONE, n);
  Muls(b, b, 0.0625f, n);
  THEN(V, MTE3);
  SAVE(out, b, n);
}

// A sum of everything: within repeats, of their sums, and handed out by a copy of one element.
KERNEL(sum_of_all) {
  BUFFERS()
  Duplicate(a, 0.0f, kMost);
  THEN(V, MTE2);
  DataCopyPad(a, x, DataCopyExtParams{1, uint32_t(n) * 4, 0, 0, 0},
              DataCopyPadExtParams<float>{true, 0, 0, 0});  // and nothing to the block's end
  THEN(MTE2, V);
  Duplicate(b, 0.0f, kMost);
  WholeReduceSum(b, a, 64, 2, 1, 1, 8);
  ReduceSum(c, b, c, 8);
  const float sum = c.GetValue(0);
  Duplicate(b, sum, n);
  THEN(V, MTE3);
  SAVE(out, b, n);
}

// The greatest elements of repeats, as values and as places, each in its order.
KERNEL(greatest_and_where) {
  BUFFERS()
  Duplicate(a, 0.0f, kMost);
  THEN(V, MTE2);
  DataCopyPad(a, x, DataCopyExtParams{1, uint32_t(n) * 4, 0, 0, 0},
              DataCopyPadExtParams<float>{true, 0, 0, 0});
  THEN(MTE2, V);
  WholeReduceMax(b, a, 64, 2, 1, 1, 8);
  WholeReduceMax(b[16], a, 64, 2, 1, 1, 8, ReduceOrder::ORDER_INDEX_VALUE);
  WholeReduceMax(b[32], a, 64, 2, 1, 1, 8, ReduceOrder::ORDER_ONLY_VALUE);
  WholeReduceMax(b[48], a, 64, 2, 1, 1, 8, ReduceOrder::ORDER_ONLY_INDEX);
  const LocalTensor<uint32_t> places = b.ReinterpretCast<uint32_t>();
  bool same = true;
  for (uint32_t repeat = 0; repeat < 2; ++repeat) {
    const float value = b(2 * repeat);
    const uint32_t place = places(2 * repeat + 1);
    same = same && a(64 * repeat + place) == value && b(32 + repeat) == value;
    same = same && b(16 + 2 * repeat + 1) == value && places(16 + 2 * repeat) == place;
    same = same && places(48 + repeat) == place;
  }
  ReduceMax(c, a, c, n);
  const float greatest = c.GetValue(0);
  same = same && greatest == max(static_cast<float>(b(0)), static_cast<float>(b(2)));
  Duplicate(b, same ? greatest : -1.0f, n);
  THEN(V, MTE3);
  SAVE(out, b, n);
}

// Comparisons as bits, and elements that they choose.
KERNEL(chosen_by_bits) {
  BUFFERS()
  const LocalTensor<uint8_t> bits = own_c.Get<uint8_t>();
  Duplicate(a, 0.0f, kMost);
  THEN(V, MTE2);
  LOAD(a, x, n);
  THEN(MTE2, V);
  CompareScalar(bits, a, 0.5f, CMPMODE::GE, kMost);
  Select(b, bits, a, 0.0f, SELMODE::VSEL_TENSOR_SCALAR_MODE, n);
  THEN(V, MTE3);
  SAVE(out, b, n);
}

// Rows of global memory with room between them, by one copy each way.
KERNEL(rows_with_room) {
  BUFFERS()
  const uint32_t half = n / 2;
  DataCopyPad(a, x, DataCopyExtParams{2, half * 4, 0, 1, 0},
              DataCopyPadExtParams<float>{true, 0, 0, 0});
  THEN(MTE2, MTE3);
  DataCopyPad(out, a, DataCopyExtParams{2, half * 4, 1, 0, 0});
}

// The queue waits for the vector unit alone, but the barrier of the next round for the copy out.
KERNEL(barrier_of_the_next_round) {
  TENSORS()
  TQue<TPosition::VECIN, 1> ins;
  pipe.InitBuffer(ins, 2, kBytes);
  for (int32_t at = 0; at < n; at += 8) {
    const int32_t count = n - at < 8 ? n - at : 8;
    LocalTensor<float> tile = ins.AllocTensor<float>();
    LOAD(tile, x[at], count);
    PipeBarrier<PIPE_ALL>();
    SAVE(out[at], tile, count);
    ins.FreeTensor(tile);
  }
}

// Parameters member by member, and a tiling that is the kernel's own to change.
struct Tiling {
  int32_t count;
};
KERNEL(members_and_tiling) {
  BUFFERS()
  Tiling given{2 * n};
  GET_TILING_DATA_WITH_STRUCT(Tiling, tiling, reinterpret_cast<GM_ADDR>(&given));
  Tiling* own = &tiling;
  own->count = given.count / 2;
  DataCopyExtParams how;
  how.blockCount = 1;
  how.blockLen = static_cast<uint32_t>(own->count * sizeof(float));
  how.srcStride = 0;
  how.dstStride = 0;
  how.rsv = 0;
  LOAD(a, x, given.count / 2);
  THEN(MTE2, MTE3);
  DataCopyPad(out, a, how);
}

// --- of four blocks ------------------------------------------------------------------------------

// Each block adds to all of global memory, after one of them has cleared it.
KERNEL(sum_of_blocks) {
  BUFFERS()
  Duplicate(b, 0.0f, kMost);
  if (GetBlockIdx() == 0) {
    THEN(V, MTE3);
    SAVE(out, b, n);
  }
  SyncAll();
  LOAD(a, x, n);
  THEN(MTE2, V);
  Muls(a, a, 0.25f, n);
  THEN(V, MTE3);
  SetAtomicAdd<float>();
  SAVE(out, a, n);
  SetAtomicNone();
}

// Blocks hand their parts to each other, twice.
KERNEL(parts_that_go_round) {
  BUFFERS()
  const int32_t each = n / 4, first = GetBlockIdx() * each;
  LOAD(a, x[first], each);
  THEN(MTE2, MTE3);
  SAVE(out[first], a, each);
  for (int32_t round = 0; round < 4; ++round) {
    SyncAll();
    LOAD(b, out[(first + each) % (4 * each)], each);
    SyncAll();
    THEN(MTE2, MTE3);
    SAVE(out[first], b, each);
  }
}

// The same by flags, of which each queue sets its own, and then by all queues.
KERNEL(parts_that_go_round_by_flags) {
  BUFFERS()
  const int32_t each = n / 4, first = GetBlockIdx() * each;
  LOAD(a, x[first], each);
  THEN(MTE2, MTE3);
  SAVE(out[first], a, each);
  for (int32_t round = 0; round < 4; ++round) {
    CrossCoreSetFlag<0, PIPE_MTE3>(round % 2);
    CrossCoreWaitFlag(round % 2);
    LOAD(b, out[(first + each) % (4 * each)], each);
    if (round == 2) {
      SyncAll();
    } else {
      CrossCoreSetFlag<0, PIPE_MTE2>(3);
      CrossCoreWaitFlag<0, PIPE_MTE3>(3);
    }
    THEN(MTE2, MTE3);
    SAVE(out[first], b, each);
  }
}

// More blocks than there is work.
KERNEL(blocks_without_work) {
  BUFFERS()
  if (GetBlockIdx() != 2) return;
  LOAD(a, x, n);
  THEN(MTE2, MTE3);
  SAVE(out, a, n);
}

void launch(const std::string& name, aclrtStream stream, GM_ADDR x, GM_ADDR out, int32_t n) {
  const Row table[] = {
#undef ROW
#define ROW(name) {#name, name}
#define ROW_OF_FOUR(name) {#name, name, 4}
      ROW(ping_and_pong),
      ROW(bound_queue),
      ROW(tensors_in_place),
      ROW(fetched_ahead),
      ROW(queue_of_intermediates),
      ROW(parts_of_a_buffer),
      ROW(pipe_used_again),
      ROW(over_its_source),
      ROW(masks_and_steps),
      ROW(scalars_between),
      ROW(refilled_after_a_scalar),
      ROW(by_way_of_half),
      ROW(sum_of_all),
      ROW(greatest_and_where),
      ROW(chosen_by_bits),
      ROW(rows_with_room),
      ROW(members_and_tiling),
      ROW(barrier_of_the_next_round),
      ROW_OF_FOUR(sum_of_blocks),
      ROW_OF_FOUR(parts_that_go_round),
      ROW_OF_FOUR(parts_that_go_round_by_flags),
      ROW_OF_FOUR(blocks_without_work),
  };
  for (const Row& row : table) {
    if (name == row.name) row.kernel<<<row.blocks, nullptr, stream>>>(x, out, n);
  }
}

}  // namespace

void unusual(const opsmith::Context& ctx, const ascendc_faults::unusual_args& a) {
  launch(std::string(a.fault), opsmith::npu_stream(ctx), opsmith::gm(a.x), opsmith::gm(a.out),
         static_cast<int32_t>(a.N));
}
OPSMITH_KERNEL(ascendc_faults, unusual, npu)
