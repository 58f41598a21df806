// Faults of instructions that sort, repeat, sum and copy within the unified buffer, and of masks.
#include "rearranged.h"

#include "faults.h"

namespace {

// All elements with their places; what is behind them is least.
#define PAIRS()                                                                    \
  TENSORS()                                                                        \
  TBuf<> own_a, own_index, own_pairs, own_more;                                    \
  pipe.InitBuffer(own_a, kBytes);                                                  \
  pipe.InitBuffer(own_index, kBytes);                                              \
  pipe.InitBuffer(own_pairs, 2 * kBytes);                                          \
  pipe.InitBuffer(own_more, 2 * kBytes);                                           \
  const LocalTensor<float> a = own_a.Get<float>(), pairs = own_pairs.Get<float>(), \
                           more = own_more.Get<float>();                           \
  const LocalTensor<uint32_t> index = own_index.Get<uint32_t>();                   \
  Duplicate(a, -1.0f, kMost);                                                      \
  CreateVecIndex(index.ReinterpretCast<int32_t>(), 0, kMost);                      \
  THEN(V, MTE2);                                                                   \
  DataCopyPad(a, x, DataCopyExtParams{1, uint32_t(n) * 4, 0, 0, 0},                \
              DataCopyPadExtParams<float>{true, 0, 0, -1.0f});
#define SORTED_BY_32() \
  PAIRS()              \
  THEN(MTE2, V);       \
  Sort32(pairs, a, index, 4);
#define VALUES_OF(sorted)       \
  Extract(a, index, sorted, 4); \
  THEN(V, MTE3);                \
  SAVE(out, a, n)
#define LISTS(from) {from, from[64], from[128], from[192]}
constexpr uint16_t k32Each[4] = {32, 32, 32, 32};

// --- sorting -------------------------------------------------------------------------------------

KERNEL(sorted_before_it_is_copied) {
  PAIRS()
  if constexpr (!kWrong) {
    THEN(MTE2, V);
  }
  Sort32(pairs, a, index, 4);  // FAULT
  MrgSort<float>(more, LISTS(pairs), {k32Each, false, 15, 1});
  VALUES_OF(more);
}

KERNEL(indices_at_no_block) {
  PAIRS()
  THEN(MTE2, V);
  Sort32(pairs, a, index[kWrong ? 1 : 0], kWrong ? 3 : 4);  // FAULT
  MrgSort<float>(more, LISTS(pairs), {k32Each, false, 15, 1});
  VALUES_OF(more);
}

KERNEL(sorted_too_often) {
  PAIRS()
  THEN(MTE2, V);
  Sort32(pairs, a, index, kWrong ? 256 : 4);  // FAULT
  MrgSort<float>(more, LISTS(pairs), {k32Each, false, 15, 1});
  VALUES_OF(more);
}

KERNEL(sorted_without_room_for_places) {
  PAIRS()
  THEN(MTE2, V);
  TBuf<> small;
  pipe.InitBuffer(small, kWrong ? kBytes : 2 * kBytes);
  const LocalTensor<float> sorted = small.Get<float>();
  Sort32(sorted, a, index, 4);  // FAULT
  MrgSort<float>(more, LISTS(sorted), {k32Each, false, 15, 1});
  VALUES_OF(more);
}

KERNEL(merged_over_its_lists) {
  SORTED_BY_32()
  const LocalTensor<float> merged = kWrong ? pairs : more;
  MrgSort<float>(merged, LISTS(pairs), {k32Each, false, 15, 1});  // FAULT
  VALUES_OF(merged);
}

KERNEL(merged_of_one_list) {
  SORTED_BY_32()
  MrgSort<float>(more, LISTS(pairs), {k32Each, false, kWrong ? 1 : 15, 1});  // FAULT
  VALUES_OF(more);
}

KERNEL(merged_of_too_long_a_list) {
  SORTED_BY_32()
  const uint16_t lengths[4] = {32, 32, 32, kWrong ? 4096 : 32};
  MrgSort<float>(more, LISTS(pairs), {lengths, false, 15, 1});  // FAULT
  VALUES_OF(more);
}

KERNEL(list_of_half_a_pair) {
  SORTED_BY_32()
  const MrgSortSrcList<float> lists(pairs, pairs[64], pairs[128], pairs[kWrong ? 191 : 192]);
  MrgSort<float>(more, lists, {k32Each, false, 15, 1});  // FAULT
  VALUES_OF(more);
}

KERNEL(merged_once_in_place_of_twice) {
  SORTED_BY_32()
  const uint16_t halves[4] = {32, 32, 0, 0}, quarters[4] = {16, 16, 16, 16};
  Duplicate(more, -1.0f, 2 * kMost);
  if constexpr (kWrong) {
    MrgSort<float>(more, LISTS(pairs), {halves, false, 3, 2});  // FAULT
  } else {
    MrgSort<float>(more, {pairs, pairs[64], pairs, pairs}, {halves, false, 3, 1});
    MrgSort<float>(more[128], {pairs[128], pairs[192], pairs, pairs}, {halves, false, 3, 1});
  }
  const uint16_t lengths[4] = {64, 64, 0, 0};
  MrgSort<float>(pairs, {more, more[128], more, more}, {lengths, false, 3, 1});
  VALUES_OF(pairs);
}

KERNEL(merged_until_a_list_ends) {
  SORTED_BY_32()
  Duplicate(more, -1.0f, 2 * kMost);
  MrgSort<float>(more, LISTS(pairs), {k32Each, kWrong, 15, 1});
  VALUES_OF(more);
}

KERNEL(pairs_read_as_values) {
  SORTED_BY_32()
  MrgSort<float>(more, LISTS(pairs), {k32Each, false, 15, 1});
  Extract(a, index, more, 4);
  THEN(V, MTE3);
  SAVE(out, (kWrong ? more : a), n);
}

// --- repeated, summed and copied -----------------------------------------------------------------

#define FIRST(count)         \
  BUFFERS()                  \
  LOAD(a, x, count);         \
  THEN(MTE2, V);             \
  Duplicate(b, 0.0f, kMost); \
  uint32_t from[2] = {1, 1}, to[2] = {1, kMost};

KERNEL(repeats_two_columns) {
  FIRST(n)
  if constexpr (kWrong) from[1] = 2;
  Broadcast<float, 2, 1>(b, a, to, from);  // FAULT
  THEN(V, MTE3);
  SAVE(out, b, n);
}

KERNEL(repeats_more_rows_than_there_are) {
  FIRST(n)
  if constexpr (kWrong) to[0] = 2, to[1] = 64;
  BroadCast<float, 2, 1>(b, a, to, from);  // FAULT
  THEN(V, MTE3);
  SAVE(out, b, n);
}

KERNEL(repeats_a_row_of_no_block) {
  FIRST(n)
  Broadcast<float, 2, 1>(b, a, to, from);
  from[1] = to[1] = kWrong ? 4 : 8;
  to[0] = 16;
  Broadcast<float, 2, 0>(c, b, to, from);  // FAULT
  THEN(V, MTE3);
  SAVE(out, (kWrong ? b : c), n);
}

KERNEL(repeats_over_its_source) {
  FIRST(n)
  const LocalTensor<float> result = kWrong ? a : b;
  Broadcast<float, 2, 1>(result, a, to, from);  // FAULT
  THEN(V, MTE3);
  SAVE(out, result, n);
}

KERNEL(repeated_past_the_end) {
  FIRST(n)
  if constexpr (kWrong) to[1] = kMost + 1;
  Broadcast<float, 2, 1>(b, a, to, from);  // FAULT
  THEN(V, MTE3);
  SAVE(out, b, n);
}

// Sums of rows of five elements, of which all but the first are zero.
#define ROW_OF_FIVE()        \
  BUFFERS()                  \
  Duplicate(b, 0.0f, kMost); \
  THEN(V, MTE2);             \
  LOAD(a, x, 1);             \
  THEN(MTE2, V);             \
  Duplicate(b, 0.0f, 8);     \
  Add(b, b, a, 1);

KERNEL(rows_without_room_to_a_block) {
  ROW_OF_FIVE()
  Sum(c, b, {2, kWrong ? 5u : 8u, 5});  // FAULT
  const float sum = c(0);
  Duplicate(b, sum, n);
  THEN(V, MTE3);
  SAVE(out, b, n);
}

KERNEL(summed_over_its_rows) {
  ROW_OF_FIVE()
  const LocalTensor<float> sums = kWrong ? b : c;
  Sum(sums, b, {2, 8, 5});  // FAULT
  const float sum = sums(0);
  Duplicate(a, sum, n);
  THEN(V, MTE3);
  SAVE(out, a, n);
}

KERNEL(copied_with_too_long_a_step) {
  QUEUES()
  BY_QUEUES(Muls(result, in, 2.0f, n);  // FAULT
            Copy(in, result, 8, 1, {1, 1, kWrong ? uint16_t{4096} : uint16_t{4095}, 8}))
}

KERNEL(copied_within_and_not_waited_for) {
  BUFFERS()
  LOAD(a, x, n);
  THEN(MTE2, V);
  Copy(b, a, 64, 2, {1, 1, 8, 8});
  if constexpr (!kWrong) {
    THEN(V, MTE3);
  }
  SAVE(out, b, n);  // FAULT
}

KERNEL(whole_tensors_of_unlike_size) {
  BUFFERS()
  TBuf<> small;
  pipe.InitBuffer(small, kWrong ? kBytes / 2 : kBytes);
  const LocalTensor<float> other = small.Get<float>();
  Duplicate(a, 0.0f, kMost);
  Duplicate(other, 0.0f, kWrong ? 64 : kMost);
  THEN(V, MTE2);
  LOAD(a, x, n);
  THEN(MTE2, V);
  c = a + other;  // FAULT
  THEN(V, MTE3);
  SAVE(out, c, n);
}

// --- masks ---------------------------------------------------------------------------------------

KERNEL(count_given_as_a_mask) {
  QUEUES()
  constexpr MaskMode mode = kWrong ? MaskMode::NORMAL : MaskMode::COUNTER;
  BY_QUEUES(SetMaskCount(); SetVectorMask<float, mode>(n);  // FAULT
            Muls<float, false>(result, in, 2.0f, MASK_PLACEHOLDER, 1, {1, 1, 8, 8}); SetMaskNorm();
            ResetMask())
}

KERNEL(counts_to_the_end) {
  QUEUES()
  BY_QUEUES(SetMaskCount(); Adds(result, in, 0.0f, n, 1, {1, 1, 8, 8}); if (!kWrong) SetMaskNorm();
            Muls(result, in, 2.0f, 8, 13, {1, 1, 1, 1}); SetMaskNorm())
}

KERNEL(mask_that_a_count_resets) {
  QUEUES()
  BY_QUEUES(Muls(result, in, 2.0f, n); SetVectorMask<float>(0, 0);
            if (kWrong) Adds(in, in, 0.0f, n);
            Adds<float, false>(result, in, 0.0f, MASK_PLACEHOLDER, 1, {1, 1, 8, 8}); ResetMask())
}

KERNEL(mode_that_a_count_resets) {
  QUEUES()
  BY_QUEUES(SetMaskCount(); if (kWrong) Adds(in, in, 0.0f, n);  // FAULT
            Muls(result, in, 2.0f, n, 1, {1, 1, 8, 8}); SetMaskNorm())
}

KERNEL(count_beside_a_mask) {
  QUEUES()
  BY_QUEUES(Muls(result, in, 2.0f, n); SetVectorMask<float>(8);  // FAULT
            Muls<float, false>(result, in, 2.0f, kWrong ? 8 : 1); ResetMask())
}

KERNEL(count_below_zero) {
  QUEUES()
  BY_QUEUES(Muls(result, in, 2.0f, n);  // FAULT
            Muls(result, in, 2.0f, kWrong ? n - 128 : 28))
}

template <bool kWrong>
void launch(const std::string& name, aclrtStream stream, GM_ADDR x, GM_ADDR out, int32_t n) {
#define ROW(name)       \
  {                     \
    #name, name<kWrong> \
  }
  const Row table[] = {
      ROW(sorted_before_it_is_copied),
      ROW(indices_at_no_block),
      ROW(sorted_too_often),
      ROW(sorted_without_room_for_places),
      ROW(merged_over_its_lists),
      ROW(merged_of_one_list),
      ROW(merged_of_too_long_a_list),
      ROW(list_of_half_a_pair),
      ROW(merged_once_in_place_of_twice),
      ROW(merged_until_a_list_ends),
      ROW(pairs_read_as_values),
      ROW(repeats_two_columns),
      ROW(repeats_more_rows_than_there_are),
      ROW(repeats_a_row_of_no_block),
      ROW(repeats_over_its_source),
      ROW(repeated_past_the_end),
      ROW(rows_without_room_to_a_block),
      ROW(summed_over_its_rows),
      ROW(copied_with_too_long_a_step),
      ROW(copied_within_and_not_waited_for),
      ROW(whole_tensors_of_unlike_size),
      ROW(count_given_as_a_mask),
      ROW(counts_to_the_end),
      ROW(mask_that_a_count_resets),
      ROW(mode_that_a_count_resets),
      ROW(count_beside_a_mask),
      ROW(count_below_zero),
  };
  for (const Row& row : table) {
    if (name == row.name) row.kernel<<<row.blocks, nullptr, stream>>>(x, out, n);
  }
}

}  // namespace

void rearranged(const opsmith::Context& ctx, const ascendc_faults::rearranged_args& a) {
  const auto run = a.wrong ? launch<true> : launch<false>;
  run(std::string(a.fault), opsmith::npu_stream(ctx), opsmith::gm(a.x), opsmith::gm(a.out),
      static_cast<int32_t>(a.N));
}
OPSMITH_KERNEL(ascendc_faults, rearranged, npu)
