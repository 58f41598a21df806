// Faults of memory that an instruction is handed besides: lists of blocks, and buffers of its own.
#include "handed.h"

#include "faults.h"

namespace {

// --- blocks that are transposed ------------------------------------------------------------------

// 16 blocks of 8 floats, and where they go.
#define BLOCKS()                     \
  BUFFERS()                          \
  Duplicate(a, 0.0f, kMost);         \
  THEN(V, MTE2);                     \
  LOAD_AND_ZEROS(a, x, n);           \
  uint64_t from[16], to[16];         \
  for (int i = 0; i < 16; ++i) {     \
    from[i] = a[8 * i].GetPhyAddr(); \
    to[i] = b.GetPhyAddr(8 * i);     \
  }                                  \
  TransDataTo5HDParams how;
#define TRANSPOSED(result) \
  THEN(V, MTE3);           \
  SAVE(out, result, n)

KERNEL(transposed_before_it_is_copied) {
  BLOCKS()
  if constexpr (!kWrong) {
    THEN(MTE2, V);
  }
  TransDataTo5HD<float>(to, from, how);  // FAULT
  TRANSPOSED(b);
}

KERNEL(transposed_a_step_further) {
  BLOCKS()
  THEN(MTE2, V);
  how.dstRepStride = kWrong ? 16 : 0;
  TransDataTo5HD<float>(to, from, how);  // FAULT
  TRANSPOSED(b);
}

KERNEL(transposed_again_a_step_further) {
  BLOCKS()
  THEN(MTE2, V);
  how.repeatTimes = 2;
  how.srcRepStride = kWrong ? 16 : 0;
  TransDataTo5HD<float>(to, from, how);  // FAULT
  TRANSPOSED(b);
}

KERNEL(transposed_too_often) {
  BLOCKS()
  THEN(MTE2, V);
  how.repeatTimes = kWrong ? 256 : 255;
  TransDataTo5HD<float>(to, from, how);  // FAULT
  TRANSPOSED(b);
}

KERNEL(transposed_never) {
  BLOCKS()
  THEN(MTE2, V);
  how.repeatTimes = kWrong ? 0 : 1;
  TransDataTo5HD<float>(to, from, how);
  TRANSPOSED(b);  // FAULT
}

KERNEL(transposed_to_no_block) {
  BLOCKS()
  THEN(MTE2, V);
  if constexpr (kWrong) to[3] += 4;
  TransDataTo5HD<float>(to, from, how);  // FAULT
  TRANSPOSED(b);
}

KERNEL(transposed_from_no_buffer) {
  BLOCKS()
  THEN(MTE2, V);
  if constexpr (kWrong) from[15] = 0;
  TransDataTo5HD<float>(to, from, how);  // FAULT
  TRANSPOSED(b);
}

KERNEL(transposed_to_rows_of_eight) {
  BLOCKS()
  THEN(MTE2, V);
  for (int i = 0; kWrong && i < 16; ++i) to[i] = b.GetPhyAddr(i % 2 * 64 + i / 2 * 8);
  TransDataTo5HD<float>(to, from, how);
  TRANSPOSED(b);
}

// --- buffers of an instruction's own -------------------------------------------------------------

KERNEL(maximum_in_a_buffer_that_is_copied_into) {
  BUFFERS()
  LOAD(a, x, n);
  THEN(MTE2, V);
  LOAD(b, x, n);
  TBuf<> own_d;
  pipe.InitBuffer(own_d, kBytes);
  const LocalTensor<float> other = own_d.Get<float>();
  ReduceMax(c, a, kWrong ? b : other, n);  // FAULT
  THEN(MTE2, MTE3);
  SAVE(out, b, n);
}

KERNEL(minimum_over_what_is_needed) {
  BUFFERS()
  LOAD(a, x, n);
  THEN(MTE2, V);
  Muls(b, a, 2.0f, n);
  ReduceMin(c, a, kWrong ? b : c, n);
  THEN(V, MTE3);
  SAVE(out, b, n);
}

KERNEL(maximum_in_too_small_a_buffer) {
  BUFFERS()
  TBuf<> small;
  pipe.InitBuffer(small, 32);
  LOAD(a, x, n);
  THEN(MTE2, V);
  // Eight repeats of the same 64 elements: 16 numbers are kept.
  ReduceMax(c, a, kWrong ? small.Get<float>() : b, 64, 8, 0);  // FAULT
  Muls(b, a, 2.0f, n);
  THEN(V, MTE3);
  SAVE(out, b, n);
}

KERNEL(sine_in_a_buffer_that_is_copied_out) {
  BUFFERS()
  LOAD(a, x, n);
  THEN(MTE2, V);
  Muls(b, a, 2.0f, n);
  THEN(V, MTE3);
  SAVE(out, b, n);
  const LocalTensor<float> own = kWrong ? b : c;
  TBuf<> own_d;
  pipe.InitBuffer(own_d, kBytes);
  Sin(own_d.Get<float>(), a, own.ReinterpretCast<uint8_t>(), n);  // FAULT
}

KERNEL(sorted_over_what_is_needed) {
  BUFFERS()
  TBuf<> own_pairs;
  pipe.InitBuffer(own_pairs, 2 * kBytes);
  LOAD(a, x, n);
  THEN(MTE2, V);
  Muls(b, a, 2.0f, n);
  const LocalTensor<uint32_t> places = c.ReinterpretCast<uint32_t>();
  CreateVecIndex(places.ReinterpretCast<int32_t>(), 0, 96);
  LocalTensor<float> buffer = kWrong ? b : c[96];
  Sort<float, true>(own_pairs.Get<float>(), a, places, buffer, 3);
  THEN(V, MTE3);
  SAVE(out, b, n);
}

// --- sums of repeats, numbers that are scaled, events --------------------------------------------

KERNEL(sum_of_repeats_in_steps_of_bytes) {
  BUFFERS()
  Duplicate(a, 0.0f, kMost);
  THEN(V, MTE2);
  LOAD_AND_ZEROS(a, x, n);
  THEN(MTE2, V);
  ReduceSum(c, a, b, 64, 2, kWrong ? 256 : 8);  // FAULT
  const float sum = c(0);
  Duplicate(b, sum, n);
  THEN(V, MTE3);
  SAVE(out, b, n);
}

KERNEL(integers_without_a_scale) {
  BUFFERS()
  TBuf<> own_h;
  pipe.InitBuffer(own_h, kBytes);
  const LocalTensor<half> halves = own_h.Get<half>();
  const LocalTensor<int32_t> numbers = b.ReinterpretCast<int32_t>();
  LOAD(a, x, n);
  Duplicate(numbers, 8, n);
  if constexpr (!kWrong) SetDeqScale(half(0.25f));
  Cast(halves, numbers, RoundMode::CAST_NONE, n);  // FAULT
  Cast(c, halves, RoundMode::CAST_NONE, n);
  THEN(MTE2, V);
  Mul(c, c, a, n);
  THEN(V, MTE3);
  SAVE(out, c, n);
}

KERNEL(event_fetched_twice) {
  BUFFERS()
  LOAD(a, x, n);
  TEventID one = pipe.FetchEventID(HardEvent::MTE2_V);
  if constexpr (!kWrong) one = pipe.AllocEventID<HardEvent::MTE2_V>();
  SetFlag<HardEvent::MTE2_V>(one);
  LOAD(b, x, n);
  const TEventID other = pipe.FetchEventID(HardEvent::MTE2_V);
  SetFlag<HardEvent::MTE2_V>(other);  // FAULT
  WaitFlag<HardEvent::MTE2_V>(one);
  WaitFlag<HardEvent::MTE2_V>(other);
  if constexpr (!kWrong) pipe.ReleaseEventID<HardEvent::MTE2_V>(one);
  Add(c, a, b, n);
  THEN(V, MTE3);
  SAVE(out, c, n);
}

KERNEL(bound_queue_taken_for_the_other_end) {
  TENSORS()
  TQueBind<TPosition::VECIN, TPosition::VECOUT, 1> bound;
  pipe.InitBuffer(bound, 1, kBytes);
  LocalTensor<float> a = bound.AllocTensor<float>();
  LOAD(a, x, n);
  bound.EnQue<TPosition::GM, TPosition::VECIN, float>(a);
  if constexpr (kWrong) a = bound.DeQue<TPosition::VECOUT, TPosition::GM, float>();
  if constexpr (!kWrong) a = bound.DeQue<TPosition::GM, TPosition::VECIN, float>();
  Muls(a, a, 2.0f, n);  // FAULT
  bound.EnQue<TPosition::VECOUT, TPosition::GM, float>(a);
  a = bound.DeQue<TPosition::VECOUT, TPosition::GM, float>();
  SAVE(out, a, n);
  bound.FreeTensor(a);
}

template <bool kWrong>
void launch(const std::string& name, aclrtStream stream, GM_ADDR x, GM_ADDR out, int32_t n) {
#define ROW(name)       \
  {                     \
    #name, name<kWrong> \
  }
  const Row table[] = {
      ROW(transposed_before_it_is_copied),
      ROW(transposed_a_step_further),
      ROW(transposed_again_a_step_further),
      ROW(transposed_too_often),
      ROW(transposed_never),
      ROW(transposed_to_no_block),
      ROW(transposed_from_no_buffer),
      ROW(transposed_to_rows_of_eight),
      ROW(maximum_in_a_buffer_that_is_copied_into),
      ROW(minimum_over_what_is_needed),
      ROW(maximum_in_too_small_a_buffer),
      ROW(sine_in_a_buffer_that_is_copied_out),
      ROW(sorted_over_what_is_needed),
      ROW(sum_of_repeats_in_steps_of_bytes),
      ROW(integers_without_a_scale),
      ROW(event_fetched_twice),
      ROW(bound_queue_taken_for_the_other_end),
  };
  for (const Row& row : table) {
    if (name == row.name) row.kernel<<<row.blocks, nullptr, stream>>>(x, out, n);
  }
}

}  // namespace

void handed(const opsmith::Context& ctx, const ascendc_faults::handed_args& a) {
  const auto run = a.wrong ? launch<true> : launch<false>;
  run(std::string(a.fault), opsmith::npu_stream(ctx), opsmith::gm(a.x), opsmith::gm(a.out),
      static_cast<int32_t>(a.N));
}
OPSMITH_KERNEL(ascendc_faults, handed, npu)
