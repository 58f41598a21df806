// Sums, maxima and minima of a block of 32 bytes, of a repeat of 256, and of a tensor.
//
// After Memory矢量计算/归约计算. A sum is a tree over neighbours, and over repeats in order.
#pragma once

#include <ascendc/vector.h>

namespace AscendC {

enum class ReduceOrder {
  ORDER_VALUE_INDEX = 0,
  ORDER_INDEX_VALUE,
  ORDER_ONLY_VALUE,
  ORDER_ONLY_INDEX
};

}  // namespace AscendC

namespace emulated::npu {

template <typename T>
T tree_sum(std::vector<T> values) {
  while (values.size() > 1) {
    std::vector<T> sums;
    for (size_t i = 0; i < values.size(); i += 2) {
      sums.push_back(i + 1 < values.size() ? static_cast<T>(values[i] + values[i + 1]) : values[i]);
    }
    values = std::move(sums);
  }
  return values[0];
}

// A value, and the place where it was first.
template <typename T>
struct Found {
  T value;
  uint32_t index;
};

struct Sum {
  template <typename T>
  Found<T> operator()(std::vector<Found<T>> all) const {
    std::vector<T> values;
    for (const Found<T>& one : all) values.push_back(one.value);
    return {tree_sum(std::move(values)), 0};
  }
};
struct SumInOrder {
  template <typename T>
  Found<T> operator()(const std::vector<Found<T>>& all) const {
    Found<T> sum = all[0];
    for (size_t i = 1; i < all.size(); ++i) sum.value = T(sum.value + all[i].value);
    return sum;
  }
};
template <bool greatest>
struct Extreme {
  template <typename T>
  Found<T> operator()(const std::vector<Found<T>>& all) const {
    Found<T> best = all[0];
    for (const Found<T>& one : all) {
      if (greatest ? best.value < one.value : one.value < best.value) best = one;
    }
    return best;
  }
};

// Reduces groups of `group` elements of each repeat, and calls store(repeat, group, found).
template <typename Reduce, typename T, typename Store>
void reduce(const Operand<T>& from, const Lanes& lanes, uint64_t group, Store store) {
  from.touch(lanes, false);
  for (uint64_t repeat = 0; repeat < lanes.repeats(); ++repeat) {
    for (uint64_t first = 0; first < lanes.per(); first += group) {
      std::vector<Found<T>> all;
      for (uint64_t lane = first; lane < first + group; ++lane) {
        if (lanes.active(repeat, lane)) {
          all.push_back({*from.at(repeat, lane), static_cast<uint32_t>(lane)});
        }
      }
      if (!all.empty()) store(repeat, first / group, Reduce()(std::move(all)));
    }
  }
}

// What is found in each repeat, with places in the whole.
template <typename Reduce, typename T>
std::vector<Found<T>> by_repeats(const Operand<T>& src, const Lanes& lanes) {
  std::vector<Found<T>> parts;
  reduce<Reduce>(src, lanes, lanes.per(), [&](uint64_t repeat, uint64_t, Found<T> found) {
    found.index += static_cast<uint32_t>(repeat * lanes.per());
    parts.push_back(found);
  });
  return parts;
}

template <typename T>
void put(const AscendC::LocalTensor<T>& to, uint64_t at, T value) {
  writes(to.buffer(), to.data() + at, sizeof(T));
  to.data()[at] = value;
}
// An index has the type of the value, and the bits of an integer.
template <typename T>
T as_value(uint32_t index) {
  T value;
  std::memcpy(&value, &index, sizeof value);
  return value;
}

// Stores what was found as the result number `at`: a value, an index, or both.
template <typename T>
void put_found(const AscendC::LocalTensor<T>& to, uint64_t at, Found<T> found,
               AscendC::ReduceOrder order) {
  using Order = AscendC::ReduceOrder;
  if (order == Order::ORDER_ONLY_VALUE) return put(to, at, found.value);
  // An index alone has 32 bits, whatever the type of the values.
  if (order == Order::ORDER_ONLY_INDEX) {
    return put(to.template ReinterpretCast<uint32_t>(), at, found.index);
  }
  const uint64_t index_first = order == Order::ORDER_INDEX_VALUE;
  put(to, 2 * at + index_first, found.value);
  put(to, 2 * at + 1 - index_first, as_value<T>(found.index));
}

// Reduces all repeats, and writes into the buffer `kept` elements for each of them, or more.
template <typename Reduce, typename Together, typename T>
void reduce_all(const AscendC::LocalTensor<T>& dst, const Operand<T>& src, const Lanes& lanes,
                const AscendC::LocalTensor<T>& buffer, uint64_t kept, bool with_index) {
  std::vector<Found<T>> parts = by_repeats<Reduce>(src, lanes);
  if (parts.empty()) return;
  const Found<T> all = Together()(std::move(parts));
  scribble(buffer, rounded_up(kept * lanes.repeats() * sizeof(T)));
  put(dst, 0, all.value);
  if (with_index) put(dst, 1, as_value<T>(all.index));
}

}  // namespace emulated::npu

namespace AscendC {

// A result for each repeat; `dst_step` counts results.
#define NPU_WHOLE(Name, Reduce)                                                                   \
  template <typename T, bool mask_given = true>                                                   \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, npu::Mask mask,                 \
            uint32_t repeats, uint32_t dst_step, uint32_t block_step, uint32_t repeat_step,       \
            ReduceOrder order = ReduceOrder::ORDER_VALUE_INDEX, Place place = here()) {           \
    NPU_TAKES(Name, half, float)                                                                  \
    npu::issue(npu::Queue::V, #Name, place);                                                      \
    const bool sums = std::is_same_v<npu::Reduce, npu::Sum>;                                      \
    npu::reduce<npu::Reduce>(                                                                     \
        npu::Operand<T>{src, block_step, repeat_step}, npu::masked<T, mask_given>(mask, repeats), \
        npu::repeat_bytes / sizeof(T), [&](uint64_t repeat, uint64_t, npu::Found<T> found) {      \
          npu::put_found(dst, repeat * dst_step, found,                                           \
                         sums ? ReduceOrder::ORDER_ONLY_VALUE : order);                           \
        });                                                                                       \
  }
NPU_WHOLE(WholeReduceSum, Sum)
NPU_WHOLE(WholeReduceMax, Extreme<true>)
NPU_WHOLE(WholeReduceMin, Extreme<false>)
#undef NPU_WHOLE

// A result for each block of a repeat, or for each pair of elements.
#define NPU_PARTS(Name, Reduce, size)                                                             \
  template <typename T, bool mask_given = true>                                                   \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint32_t repeats,               \
            npu::Mask mask, uint32_t dst_step, uint32_t block_step, uint32_t repeat_step,         \
            Place place = here()) {                                                               \
    NPU_TAKES(Name, half, float)                                                                  \
    npu::issue(npu::Queue::V, #Name, place);                                                      \
    constexpr uint64_t per = npu::repeat_bytes / sizeof(T), group = size;                         \
    npu::reduce<npu::Reduce>(                                                                     \
        npu::Operand<T>{src, block_step, repeat_step}, npu::masked<T, mask_given>(mask, repeats), \
        group, [&](uint64_t repeat, uint64_t part, npu::Found<T> found) {                         \
          npu::put(dst, repeat * dst_step * (per / group) + part, found.value);                   \
        });                                                                                       \
  }
NPU_PARTS(BlockReduceSum, Sum, npu::block_bytes / sizeof(T))
NPU_PARTS(BlockReduceMax, Extreme<true>, npu::block_bytes / sizeof(T))
NPU_PARTS(BlockReduceMin, Extreme<false>, npu::block_bytes / sizeof(T))
NPU_PARTS(PairReduceSum, Sum, 2)
#undef NPU_PARTS

// The first `count` elements of a tensor, or those of repeats, of which there may be more than 255.
// ReduceSum with a count needs no buffer.
#define NPU_REDUCE(Name, Reduce, Together, Across, counted_kept, kept)                          \
  template <typename T, bool mask_given = true>                                                 \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& buffer, \
            int32_t count, bool with_index = false, Place place = here()) {                     \
    NPU_TAKES(Name, half, float)                                                                \
    npu::issue(npu::Queue::V, #Name, place);                                                    \
    const npu::Lanes lanes = npu::counted<T, mask_given>(count);                                \
    npu::reduce_all<npu::Reduce, npu::Together>(dst, npu::in_a_row(src), lanes, buffer,         \
                                                counted_kept, with_index);                      \
  }                                                                                             \
  template <typename T>                                                                         \
  void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& buffer, \
            npu::Mask mask, int32_t repeats, int32_t repeat_step, bool with_index = false,      \
            Place place = here()) {                                                             \
    NPU_TAKES(Name, half, float)                                                                \
    npu::issue(npu::Queue::V, #Name, place);                                                    \
    npu::reduce_all<npu::Reduce, npu::Across>(                                                  \
        dst, npu::Operand<T>{src, 1, uint64_t(repeat_step)},                                    \
        npu::Lanes(mask, repeats, npu::repeat_bytes / sizeof(T)), buffer, kept, with_index);    \
  }
NPU_REDUCE(ReduceMax, Extreme<true>, Extreme<true>, Extreme<true>, 2, 2)
NPU_REDUCE(ReduceMin, Extreme<false>, Extreme<false>, Extreme<false>, 2, 2)
NPU_REDUCE(ReduceSum, Sum, SumInOrder, Sum, 0, 1)
#undef NPU_REDUCE

}  // namespace AscendC
