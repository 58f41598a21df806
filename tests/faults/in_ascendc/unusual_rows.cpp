// Right kernels that sort, repeat, sum and count in unusual ways: none of them is to be flagged.
#include "unusual_rows.h"
#include "aclrtlaunch_rows_by_operators.h"

#include "faults.h"

namespace {

#undef KERNEL
#define KERNEL(name) __global__ __aicore__ void name(GM_ADDR x_at, GM_ADDR out_at, int32_t n)

// Numbers that overwrite an operand, and bits of a whole tensor.
KERNEL(rows_by_operators) {
  BUFFERS()
  TBuf<> own_bits, own_twice;
  pipe.InitBuffer(own_bits, kMost / 8);
  pipe.InitBuffer(own_twice, kBytes);
  const LocalTensor<uint8_t> bits = own_bits.Get<uint8_t>(kMost / 8);
  const LocalTensor<float> twice = own_twice.Get<float>();
  Duplicate(a, 1.0f, kMost);
  THEN(V, MTE2);
  LOAD(a, x, n);
  THEN(MTE2, V);
  twice = a + a;
  c = a / a;
  b = twice * c;
  c = b - a;
  bits = a < b;
  Select(c, bits, c, 0.0f, SELMODE::VSEL_TENSOR_SCALAR_MODE, n);
  bits = b >= twice;
  bits.ReinterpretCast<uint16_t>() =
      bits.ReinterpretCast<uint16_t>() & bits.ReinterpretCast<uint16_t>();
  Select(c, bits, c, 0.0f, SELMODE::VSEL_TENSOR_SCALAR_MODE, n);
  THEN(V, MTE3);
  SAVE(out, c, n);
}

// In counter mode, by a mask that is given and by one of SetVectorMask, with steps between blocks.
KERNEL(counted_with_steps) {
  BUFFERS()
  TBuf<> own_wide;
  pipe.InitBuffer(own_wide, 2 * kBytes);
  const LocalTensor<float> wide = own_wide.Get<float>();
  LOAD(a, x, n);
  THEN(MTE2, V);
  SetMaskCount();
  Adds(wide, a, 0.0f, n, 1, {2, 1, 16, 8});
  SetVectorMask<float, MaskMode::COUNTER>(n);
  Adds<float, false>(b, wide, 0.0f, MASK_PLACEHOLDER, 0, {1, 2, 8, 16});
  Copy<float, false>(c, wide, MASK_PLACEHOLDER, 1, {1, 2, 8, 8});
  Sub<float, false>(b, b, c, 1);
  Add<float, false>(b, b, c, MASK_PLACEHOLDER, 1, {1, 1, 1, 8, 8, 8});
  SetMaskNorm();
  ResetMask();
  const uint64_t odd[2] = {0xAA, 0};
  Copy(c, b, odd, 13, {1, 1, 1, 1});
  Copy(c, a, 1, 13, {1, 1, 1, 1});
  THEN(V, MTE3);
  SAVE(out, c, n);
}

// A repeat of 64 elements goes to every other 256 bytes.
KERNEL(gathered_by_repeats) {
  BUFFERS()
  TBuf<> own_wide, own_at;
  pipe.InitBuffer(own_wide, 2 * kBytes);
  pipe.InitBuffer(own_at, kBytes);
  const LocalTensor<float> wide = own_wide.Get<float>();
  const LocalTensor<int32_t> at = own_at.Get<int32_t>();
  Duplicate(a, 0.0f, kMost);
  THEN(V, MTE2);
  LOAD(a, x, n);
  THEN(MTE2, V);
  CreateVecIndex(at, 1, 64, 2, 1, 8);
  Adds(at, at, -1, kMost);
  Muls(at, at, 4, kMost);
  Gather(wide, a, at.ReinterpretCast<uint32_t>(), 0, 64, 2, 16);
  Adds(b, wide, 0.0f, 64, 2, {1, 1, 8, 16});
  THEN(V, MTE3);
  SAVE(out, b, n);
}

// Each element fills a row of five, whose sum is five times it.
KERNEL(rows_repeated_and_summed) {
  BUFFERS()
  TBuf<> own_rows, own_shared;
  pipe.InitBuffer(own_rows, 8 * kBytes);
  pipe.InitBuffer(own_shared, kBytes);
  const LocalTensor<float> rows = own_rows.Get<float>();
  LocalTensor<uint8_t> shared = own_shared.Get<uint8_t>();
  LOAD(a, x, n);
  THEN(MTE2, V);
  const uint32_t count = n, from[2] = {count, 1}, to[2] = {count, 8};
  BroadCast<float, 2, 1, false>(rows, a, to, from, shared);
  Sum(b, rows, shared, {count, 8, 5});
  Muls(b, b, 0.2f, n);
  const uint32_t row[2] = {1, 8}, rows_of_8[2] = {count, 8};
  Broadcast<float, 2, 0>(rows, a, rows_of_8, row);
  Sum(c, rows, {count, 8, 1});
  const float first = a(0);
  Adds(c, c, -first, n);
  Add(b, b, c, n);
  THEN(V, MTE3);
  SAVE(out, b, n);
}

KERNEL(powers_and_rests) {
  BUFFERS()
  TBuf<> own_shared;
  pipe.InitBuffer(own_shared, kBytes);
  const LocalTensor<uint8_t> shared = own_shared.Get<uint8_t>();
  LOAD(a, x, n);
  THEN(MTE2, V);
  Power(b, a, 2.0f, n);
  Power(b, b, 0.5f, shared, n);
  Duplicate(c, 2.0f, n);
  Power(c, b, c, n);
  Sqrt(c, c, n);
  Adds(b, b, 4.0f, n);
  Duplicate(c, 2.0f, n);
  Fmod(b, b, c, n);
  const float first = a(0), power = ScalarCast<float, int32_t, RoundMode::CAST_FLOOR>(2.5f);
  Power(c, power, b, n);
  Ln(c, c, n);
  Muls(c, c, 1.4426950409f, n);
  const bool numbers =
      GetSFFValue<1>(8) == 3 && GetSFFValue<0>(~uint64_t{0}) == -1 &&
      float(ScalarCast<float, half, RoundMode::CAST_ODD>(3.14159f)) == 3.142578125f;
  b.SetValue(0, numbers ? first : 0.0f);
  c.SetValue(0, numbers ? first : 0.0f);
  Max(b, b, c, n);
  THEN(V, MTE3);
  SAVE(out, b, n);
}

#define UNSORTED()                                                                 \
  BUFFERS()                                                                        \
  TBuf<> own_pairs, own_more;                                                      \
  pipe.InitBuffer(own_pairs, 2 * kBytes);                                          \
  pipe.InitBuffer(own_more, 2 * kBytes);                                           \
  LocalTensor<float> pairs = own_pairs.Get<float>(), more = own_more.Get<float>(); \
  const LocalTensor<uint32_t> index = b.ReinterpretCast<uint32_t>();               \
  Duplicate(a, -1.0f, kMost);                                                      \
  CreateVecIndex(b.ReinterpretCast<int32_t>(), 0, kMost);                          \
  THEN(V, MTE2);                                                                   \
  DataCopyPad(a, x, DataCopyExtParams{1, uint32_t(n) * 4, 0, 0, 0},                \
              DataCopyPadExtParams<float>{true, 0, 0, -1.0f});                     \
  THEN(MTE2, V);

// At once, and by lists that four repeats sorted; places tell where each element was.
KERNEL(sorted_in_two_ways) {
  UNSORTED()
  LocalTensor<float> gathered;
  Concat(gathered, a, pairs, 8);
  Sort<float, true>(more, gathered, index, pairs, 4);
  Sort<float, false>(pairs, a, index, more, 0);
  Extract(c, index, more, 4);
  bool same = true;
  for (int32_t i = 0; i < n; ++i) same = same && c(i) == a(index(i));
  CreateVecIndex(b.ReinterpretCast<int32_t>(), 0, kMost);
  Sort32(pairs, a, index, 4);
  const uint16_t lengths[4] = {32, 32, 32, 32};
  uint32_t taken[4] = {};
  MrgSort(more, MrgSortSrcList<float>(pairs, pairs[64], pairs[128], pairs[192]), lengths, taken, 15,
          1);
  Extract(a, index, more, 4);
  for (int32_t i = 0; i < n; ++i) same = same && c(i) == a(i);
  // Of equal elements the first stays the first, also of two lists.
  Duplicate(a, 1.0f, 64);
  CreateVecIndex(b.ReinterpretCast<int32_t>(), 0, 64);
  Sort32(pairs, a, index, 2);
  const uint16_t two[4] = {32, 32, 0, 0};
  MrgSort<float>(more, {pairs, pairs[64], pairs, pairs}, {two, false, 3, 1});
  Extract(a, index, more, 2);
  for (uint32_t i = 0; i < 64; ++i) same = same && index(i) == i;
  if (!same) Duplicate(c, 0.0f, n);
  THEN(V, MTE3);
  SAVE(out, c, n);
}

// Until a list ends, and what is left of the others behind it.
KERNEL(merged_step_by_step) {
  UNSORTED()
  Sort32(pairs, a, index, 4);
  MrgSort4Info how;
  how.validBit = 3;
  how.elementLengths[0] = how.elementLengths[1] = 32;
  MrgSort(more, {pairs, pairs[64], {}, {}}, how);
  MrgSort<float>(more[128], {pairs[128], pairs[192], {}, {}}, how);
  how.elementLengths[0] = how.elementLengths[1] = 64;
  how.ifExhaustedSuspension = true;
  MrgSort<float>(pairs, {more, more[128], {}, {}}, how);
  uint16_t taken[4];
  GetMrgSortResult(taken[0], taken[1], taken[2], taken[3]);
  const uint32_t ended = taken[0] == 64 ? 1 : 0, rest = 64 - taken[ended], done = 128 - rest;
  // The rest of one list, beside an empty one.
  how.ifExhaustedSuspension = false;
  how.elementLengths[0] = static_cast<uint16_t>(rest);
  how.elementLengths[1] = 0;
  const LocalTensor<float> left = more[128 * ended + 2 * taken[ended]];
  TBuf<> own_left;
  pipe.InitBuffer(own_left, kBytes);
  MrgSort<float>(own_left.Get<float>(), {left, more, {}, {}}, how);
  for (uint32_t i = 0; i < done; ++i) c.SetValue(i, pairs.GetValue(2 * i));
  for (uint32_t i = done; i < kMost; ++i) {
    c.SetValue(i, own_left.Get<float>().GetValue(2 * (i - done)));
  }
  THEN(S, MTE3);
  SAVE(out, c, n);
}

// --- blocks that are transposed ------------------------------------------------------------------

// 16 rows of 16 halves, in place.
KERNEL(transposed_halves) {
  BUFFERS()
  TBuf<> own_halves;
  pipe.InitBuffer(own_halves, 16 * 32);
  const LocalTensor<half> halves = own_halves.Get<half>();
  Duplicate(halves, half(0.0f), 256);
  LOAD(a, x, n);
  THEN(MTE2, V);
  Cast(halves, a, RoundMode::CAST_RINT, n);
  Transpose(halves, halves);
  Cast(b, halves, RoundMode::CAST_NONE, n);
  THEN(V, MTE3);
  SAVE(out, b, n);
}

// The low halves of 16 blocks of 32 bytes into high ones, and the other halves of none.
KERNEL(transposed_bytes) {
  BUFFERS()
  TBuf<> own_halves, own_bytes, own_turned;
  pipe.InitBuffer(own_halves, 1024);
  pipe.InitBuffer(own_bytes, 512);
  pipe.InitBuffer(own_turned, 512);
  const LocalTensor<half> halves = own_halves.Get<half>();
  const LocalTensor<int8_t> bytes = own_bytes.Get<int8_t>(), turned = own_turned.Get<int8_t>();
  Duplicate(bytes.ReinterpretCast<int16_t>(), int16_t(0), 256);
  Duplicate(turned.ReinterpretCast<int16_t>(), int16_t(0), 256);
  LOAD(a, x, n);
  THEN(MTE2, V);
  Muls(a, a, 100.0f, n);
  Cast(halves, a, RoundMode::CAST_RINT, n);
  Cast(bytes, halves, RoundMode::CAST_RINT, n);
  uint64_t from[16], to[16];
  for (int i = 0; i < 16; ++i) {
    from[i] = bytes.GetPhyAddr(32 * i);
    to[i] = turned.GetPhyAddr(32 * i);
  }
  TransDataTo5HD<int8_t>(to, from, {true, false, 1, 0, 0});
  Cast(halves, turned, RoundMode::CAST_NONE, n);
  Cast(b, halves, RoundMode::CAST_NONE, n);
  THEN(V, MTE3);
  SAVE(out, b, n);
}

// Two repeats: the first eight rows of 16 floats, each from its half, and the others behind them.
KERNEL(transposed_by_repeats) {
  BUFFERS()
  TBuf<> own_wide;
  pipe.InitBuffer(own_wide, 1024);
  const LocalTensor<float> wide = own_wide.Get<float>();
  Duplicate(wide, 0.0f, 256);
  THEN(V, MTE2);
  LOAD_AND_ZEROS(wide, x, n);
  THEN(MTE2, V);
  TBuf<> own_turned;
  pipe.InitBuffer(own_turned, 1024);
  const LocalTensor<float> turned = own_turned.Get<float>();
  uint64_t from[NCHW_CONV_ADDR_LIST_SIZE], to[NCHW_CONV_ADDR_LIST_SIZE];
  for (int i = 0; i < 16; ++i) {
    from[i] = wide[16 * i].GetPhyAddr();
    to[i] = turned.GetPhyAddr(8 * i);
  }
  TransDataTo5HDParams how;
  how.repeatTimes = 2;
  how.srcRepStride = 1;
  how.dstRepStride = 16;
  TransDataTo5HD<float>(to, from, how);
  THEN(V, MTE3);
  SAVE(out, turned, n);
}

// --- products that are added, and sums of repeats ------------------------------------------------

// By masks and by counts, also of halves to floats.
KERNEL(products_by_masks) {
  BUFFERS()
  TBuf<> own_halves, own_twos;
  pipe.InitBuffer(own_halves, kBytes);
  pipe.InitBuffer(own_twos, kBytes);
  const LocalTensor<half> halves = own_halves.Get<half>(), twos = own_twos.Get<half>();
  Duplicate(a, 0.0f, kMost);
  THEN(V, MTE2);
  LOAD_AND_ZEROS(a, x, n);
  THEN(MTE2, V);
  Muls(b, a, 16.0f, kMost);
  Cast(halves, b, RoundMode::CAST_RINT, kMost);
  Duplicate(twos, half(2.0f), kMost);
  Duplicate(b, 0.0f, kMost);
  Duplicate(c, 1.0f, kMost);
  const uint64_t odd[] = {0xAAAAAAAAAAAAAAAA, 0}, even[] = {0x5555555555555555, 0};
  Axpy(b, halves, half(1.0f), odd, 2, {1, 1, 8, 4});
  Axpy(b, halves, half(1.0f), even, 2, {1, 1, 8, 4});
  MulAddDst(b, halves, twos, 64, 2, {1, 1, 1, 8, 4, 4});
  Axpy(b, halves, half(2.0f), n);
  MulAddDst(b, c, c, n);
  Axpy<float, float>(b, c, -1.0f, 64, 2, {1, 1, 8, 8});
  THEN(V, MTE3);
  SAVE(out, b, n);
}

// The greatest, its place and the sum of all, where repeats overlap and where they do not.
KERNEL(reduced_by_repeats) {
  BUFFERS()
  TBuf<> own_kept;
  pipe.InitBuffer(own_kept, 2400);
  const LocalTensor<float> kept = own_kept.Get<float>();
  Duplicate(a, 0.0f, kMost);
  THEN(V, MTE2);
  LOAD_AND_ZEROS(a, x, n);
  THEN(MTE2, V);
  const uint64_t all[] = {~uint64_t{0}, 0};
  ReduceMax(b, a, kept, all, 2, 8, true);
  ReduceSum(c, a, kept, 64, 2, 8);
  ReduceMax(c[8], a, kept, 64, 300, 0);
  const float greatest = b(0), sum = c(0), of_first = c(8);
  const uint32_t place = b.ReinterpretCast<uint32_t>()(1);
  THEN(V, MTE2);
  LOAD_AND_ZEROS(a, x, n);
  THEN(MTE2, V);
  const bool right = a(place) == greatest && of_first <= greatest && of_first >= a(63);
  Duplicate(b, right ? sum : 0.0f, n);
  THEN(V, MTE3);
  SAVE(out, b, n);
}

void launch(const std::string& name, aclrtStream stream, GM_ADDR x, GM_ADDR out, int32_t n) {
#define ROW(name) \
  {               \
    #name, name   \
  }
  const Row table[] = {
      ROW(counted_with_steps), ROW(gathered_by_repeats), ROW(rows_repeated_and_summed),
      ROW(powers_and_rests),   ROW(sorted_in_two_ways),  ROW(merged_step_by_step),
      ROW(transposed_halves),  ROW(transposed_bytes),    ROW(transposed_by_repeats),
      ROW(products_by_masks),  ROW(reduced_by_repeats),
  };
  // As a project's own build has launches.
  if (name == "rows_by_operators") ACLRT_LAUNCH_KERNEL(rows_by_operators)(1, stream, x, out, n);
  for (const Row& row : table) {
    if (name == row.name) row.kernel<<<row.blocks, nullptr, stream>>>(x, out, n);
  }
}

}  // namespace

void unusual_rows(const opsmith::Context& ctx, const ascendc_faults::unusual_rows_args& a) {
  launch(std::string(a.fault), opsmith::npu_stream(ctx), opsmith::gm(a.x), opsmith::gm(a.out),
         static_cast<int32_t>(a.N));
}
OPSMITH_KERNEL(ascendc_faults, unusual_rows, npu)
