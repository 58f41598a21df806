// Elements in falling order, each with its index.
//
// After 排序组合 (Sort32, MrgSort, GetMrgSortResult) and 高阶API/排序操作 (Sort, MrgSort, Concat,
// Extract). A pair has 8 bytes: the element in the first ones, and its index in the last four.
#pragma once

#include <ascendc/copies.h>
#include <ascendc/vector.h>

namespace AscendC {

template <typename T>
struct MrgSortSrcList {
  MrgSortSrcList() = default;
  MrgSortSrcList(const LocalTensor<T>& a, const LocalTensor<T>& b, const LocalTensor<T>& c,
                 const LocalTensor<T>& d)
      : src1(a), src2(b), src3(c), src4(d) {}

  LocalTensor<T> src1, src2, src3, src4;
};
// Lengths count pairs.
struct MrgSort4Info {
  MrgSort4Info() = default;
  MrgSort4Info(const uint16_t lengths[4], bool stops, uint16_t valid, uint16_t repeats)
      : ifExhaustedSuspension(stops), validBit(valid), repeatTimes(repeats) {
    std::copy_n(lengths, 4, elementLengths);
  }

  uint16_t elementLengths[4] = {};
  bool ifExhaustedSuspension = false;
  uint16_t validBit = 0;
  uint16_t repeatTimes = 1;
};

}  // namespace AscendC

namespace emulated::npu {

constexpr uint64_t pair_bytes = 8, sorted_at_once = 32;

template <typename T>
struct alignas(pair_bytes) Pair {
  T value;
  alignas(4) uint32_t index;
};
template <typename T>
Pair<T>* pairs_of(const AscendC::LocalTensor<T>& tensor) {
  return reinterpret_cast<Pair<T>*>(tensor.data());
}

// Sorts groups of `group` elements. Of equal ones the first stays the first.
template <typename T>
void sort(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
          const AscendC::LocalTensor<uint32_t>& index, uint64_t count, uint64_t group) {
  require_aligned(dst.data(), block_bytes, "a tensor");
  in_a_row(src).touch(Lanes(count, repeat_bytes / sizeof(T)), false);
  in_a_row(index).touch(Lanes(count, repeat_bytes / sizeof(uint32_t)), false);
  std::vector<Pair<T>> pairs(count);
  for (uint64_t i = 0; i < count; ++i) pairs[i] = {src.data()[i], index.data()[i]};
  for (auto first = pairs.begin(); first != pairs.end(); first += static_cast<int64_t>(group)) {
    std::stable_sort(first, first + static_cast<int64_t>(group),
                     [](const Pair<T>& a, const Pair<T>& b) { return b.value < a.value; });
  }
  writes(dst.buffer(), dst.data(), count * pair_bytes);
  std::copy(pairs.begin(), pairs.end(), pairs_of(dst));
}

// Merges lists that are sorted, and stops where one of them ends if it is to.
template <typename T>
void merge(const AscendC::LocalTensor<T>& dst, const AscendC::MrgSortSrcList<T>& src,
           const AscendC::MrgSort4Info& how) {
  static_assert(is_one_of<T, half, float>,
                "opsmith emulates no MrgSort of other elements than half, float");
  const AscendC::LocalTensor<T>* lists[] = {&src.src1, &src.src2, &src.src3, &src.src4};
  const uint16_t* lengths = how.elementLengths;
  require(how.validBit == 3 || how.validBit == 7 || how.validBit == 15, parameter,
          "has validBit " + std::to_string(how.validBit) + "; it is 3, 7 or 15");
  require_repeats(how.repeatTimes);
  require_aligned(dst.data(), block_bytes, "a tensor");
  const uint32_t valid = how.validBit == 3 ? 2 : how.validBit == 7 ? 3 : 4;
  uint64_t sum = 0;
  bool repeats = valid == 4 && !how.ifExhaustedSuspension;
  for (uint32_t i = 0; i < valid; ++i) {
    require(lengths[i] <= 4095, parameter,
            "has a list of " + std::to_string(lengths[i]) + " pairs; it takes at most 4095");
    require_aligned(lists[i]->data(), pair_bytes, "a list");
    repeats &= lengths[i] == lengths[0] && pairs_of(*lists[i]) == pairs_of(*lists[0]) + sum;
    sum += lengths[i];
  }
  if (how.repeatTimes > 1 && !repeats) {
    suspect("merges once, not " + std::to_string(how.repeatTimes) +
            " times: it repeats with four lists of one length that stand behind each other");
  }
  const uint64_t times = repeats ? how.repeatTimes : std::min<uint64_t>(how.repeatTimes, 1);
  std::vector<Pair<T>> found;
  std::array<uint16_t, 4> taken{};
  for (uint64_t repeat = 0; repeat < times; ++repeat) {
    taken = {};
    const auto head = [&](uint32_t i) { return pairs_of(*lists[i]) + repeat * sum + taken[i]; };
    for (uint32_t i = 0; i < valid; ++i) {
      reads(lists[i]->buffer(), head(i), lengths[i] * pair_bytes);
      require(head(i) + lengths[i] <= pairs_of(dst) || pairs_of(dst) + times * sum <= head(i),
              parameter, "merges a list into memory that it reads");
    }
    for (uint64_t left = sum; left != 0; --left) {
      uint32_t best = valid;
      for (uint32_t i = 0; i < valid; ++i) {
        if (taken[i] == lengths[i]) continue;
        if (best == valid || head(best)->value < head(i)->value) best = i;
      }
      found.push_back(*head(best));
      if (++taken[best] == lengths[best] && how.ifExhaustedSuspension) break;
    }
  }
  writes(dst.buffer(), dst.data(), found.size() * pair_bytes);
  std::copy(found.begin(), found.end(), pairs_of(dst));
  registers().merged = taken;
}

}  // namespace emulated::npu

namespace AscendC {

template <typename T>
void Sort32(const LocalTensor<T>& dst, const LocalTensor<T>& src,
            const LocalTensor<uint32_t>& index, uint32_t repeats, Place place = here()) {
  NPU_TAKES(Sort32, half, float)
  npu::issue(npu::Queue::V, "Sort32", place);
  npu::require_repeats(repeats);
  npu::sort(dst, src, index, uint64_t{repeats} * npu::sorted_at_once, npu::sorted_at_once);
}
// Sorts all, or each 32 elements.
template <typename T, bool all>
void Sort(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& index,
          LocalTensor<T>& buffer, uint32_t repeats, Place place = here()) {
  NPU_TAKES(Sort, half, float)
  npu::issue(npu::Queue::V, "Sort", place);
  npu::require_repeats(repeats);
  npu::require_aligned(buffer.data(), npu::block_bytes, "a tensor");
  const uint64_t count = uint64_t{repeats} * npu::sorted_at_once;
  if (all) npu::scribble(buffer.template ReinterpretCast<uint8_t>());
  npu::sort(dst, src, index, count, all && count != 0 ? count : npu::sorted_at_once);
}
template <typename T>
void MrgSort(const LocalTensor<T>& dst, const MrgSortSrcList<T>& src, const MrgSort4Info& how,
             Place place = here()) {
  npu::issue(npu::Queue::V, "MrgSort", place);
  npu::merge(dst, src, how);
}
template <typename T, bool stops = false>
void MrgSort(const LocalTensor<T>& dst, const MrgSortSrcList<T>& src, const uint16_t lengths[4],
             uint32_t taken[4], uint16_t valid, uint32_t repeats, Place place = here()) {
  npu::issue(npu::Queue::V, "MrgSort", place);
  npu::merge(dst, src, MrgSort4Info(lengths, stops, valid, static_cast<uint16_t>(repeats)));
  if (stops) std::copy_n(npu::registers().merged.begin(), 4, taken);
}
inline void GetMrgSortResult(uint16_t& a, uint16_t& b, uint16_t& c, uint16_t& d) {
  const auto& taken = npu::registers().merged;
  a = taken[0], b = taken[1], c = taken[2], d = taken[3];
}

// Takes 16 elements in a repeat to where Sort reads them.
template <typename T>
void Concat(LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& buffer,
            uint32_t repeats, Place place = here()) {
  NPU_TAKES(Concat, half, float)
  npu::issue(npu::Queue::V, "Concat", place);
  npu::require_repeats(repeats);
  npu::require_aligned(buffer.data(), npu::block_bytes, "a tensor");
  if (dst.buffer() == nullptr) dst = src;
  const npu::Lanes lanes(uint64_t{repeats} * 16, npu::repeat_bytes / sizeof(T));
  npu::compute(lanes, [](T x) { return x; }, npu::in_a_row(dst), npu::in_a_row(src));
}
// Takes 32 pairs in a repeat apart.
template <typename T>
void Extract(const LocalTensor<T>& dst, const LocalTensor<uint32_t>& index,
             const LocalTensor<T>& sorted, uint32_t repeats, Place place = here()) {
  NPU_TAKES(Extract, half, float)
  npu::issue(npu::Queue::V, "Extract", place);
  npu::require_repeats(repeats);
  npu::require_aligned(sorted.data(), npu::block_bytes, "a tensor");
  const uint64_t count = uint64_t{repeats} * npu::sorted_at_once;
  npu::reads(sorted.buffer(), sorted.data(), count * npu::pair_bytes);
  const std::vector<npu::Pair<T>> pairs(npu::pairs_of(sorted), npu::pairs_of(sorted) + count);
  npu::in_a_row(dst).touch(npu::Lanes(count, npu::repeat_bytes / sizeof(T)), true);
  npu::in_a_row(index).touch(npu::Lanes(count, npu::repeat_bytes / sizeof(uint32_t)), true);
  for (uint64_t i = 0; i < count; ++i) {
    dst.data()[i] = pairs[i].value;
    index.data()[i] = pairs[i].index;
  }
}

}  // namespace AscendC
