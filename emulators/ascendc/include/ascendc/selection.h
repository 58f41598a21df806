// Comparisons, and elements that are chosen by bits or offsets.
//
// After Memory矢量计算/比较与选择 and 离散与聚合.
#pragma once

#include <ascendc/vector.h>

namespace AscendC {

enum class SELMODE : uint8_t {
  VSEL_CMPMASK_SPR = 0,
  VSEL_TENSOR_SCALAR_MODE,
  VSEL_TENSOR_TENSOR_MODE
};
struct GatherMaskParams {
  uint8_t src0BlockStride = 1;
  uint16_t repeatTimes = 0, src0RepeatStride = 8;
  uint8_t src1RepeatStride = 0;
};

}  // namespace AscendC

namespace emulated::npu {

template <typename T>
bool compares(T x, T y, AscendC::CMPMODE mode) {
  const bool by_mode[] = {(x < y), (x > y), (x == y), (x <= y), (x >= y), (x != y)};
  return by_mode[static_cast<uint8_t>(mode)];
}

// A bit of memory for each element, in the order of the elements.
template <typename U, typename T, typename B>
void compare(const AscendC::LocalTensor<U>& dst, const Operand<T>& a, const B& b,
             AscendC::CMPMODE mode, uint64_t repeats) {
  static_assert(is_one_of<T, half, float> || std::is_same_v<T, int32_t>,
                "opsmith emulates no Compare of other elements than half, float, int32_t");
  require(!std::is_same_v<T, int32_t> || mode == AscendC::CMPMODE::EQ, parameter,
          "compares int32_t otherwise than by EQ");
  constexpr uint64_t per = repeat_bytes / sizeof(T);
  const Lanes lanes(per * repeats, per);
  require(!registers().counter_mode, parameter,
          "is in counter mode, where opsmith does not emulate it");
  a.touch(lanes, false);
  b.touch(lanes, false);
  auto* bits = reinterpret_cast<uint8_t*>(dst.data());
  writes(dst.buffer(), bits, repeats * per / 8);
  std::memset(bits, 0, repeats * per / 8);
  lanes.each([&](uint64_t repeat, uint64_t lane) {
    const uint64_t i = repeat * per + lane;
    if (compares<T>(read_from(a.at(repeat, lane)), read_from(b.at(repeat, lane)), mode))
      bits[i / 8] |= 1 << i % 8;
  });
}

template <typename T>
uint64_t whole_repeats(uint64_t count) {
  const uint64_t bytes = count * sizeof(T);
  if (bytes % repeat_bytes != 0) {
    suspect("compares " + std::to_string(bytes / repeat_bytes * repeat_bytes / sizeof(T)) + " of " +
            std::to_string(count) + " elements: it takes whole repeats of 256 bytes");
  }
  return bytes / repeat_bytes;
}

template <typename T, typename U, typename B>
void select(const Lanes& lanes, const Operand<T>& to, const AscendC::LocalTensor<U>& chosen,
            const Operand<T>& a, const B& b, AscendC::SELMODE mode) {
  static_assert(is_one_of<T, half, float>,
                "opsmith emulates no Select of other elements than half, float");
  const bool repeated = mode == AscendC::SELMODE::VSEL_CMPMASK_SPR;
  const auto* bits = reinterpret_cast<const uint8_t*>(chosen.data());
  const uint64_t per = lanes.per();
  reads(chosen.buffer(), bits, (per * (repeated ? 1 : lanes.repeats()) + 7) / 8);
  a.touch(lanes, false);
  b.touch(lanes, false);
  to.touch(lanes, true);
  lanes.each([&](uint64_t repeat, uint64_t lane) {
    const uint64_t i = (repeated ? 0 : repeat * per) + lane;
    const bool first = (bits[i / 8] >> i % 8 & 1) != 0;
    *to.at(repeat, lane) = first ? *a.at(repeat, lane) : *b.at(repeat, lane);
  });
}

}  // namespace emulated::npu

namespace AscendC {

// `CompareScalar` is the older name of `Compares`.
#define NPU_COMPARE(Name, B, Steps, a_steps, b_operand)                                            \
  template <typename T, typename U, bool mask_given = true>                                        \
  void Name(const LocalTensor<U>& dst, const LocalTensor<T>& a, B b, CMPMODE mode, uint32_t count, \
            Place place = here()) {                                                                \
    npu::issue(npu::Queue::V, #Name, place);                                                       \
    npu::compare(dst, npu::in_a_row(a), npu::in_a_row(b), mode, npu::whole_repeats<T>(count));     \
  }                                                                                                \
  template <typename T, typename U, bool mask_given = true>                                        \
  void Name(const LocalTensor<U>& dst, const LocalTensor<T>& a, B b, CMPMODE mode, npu::Mask,      \
            uint32_t repeats, const Steps& steps, Place place = here()) {                          \
    npu::issue(npu::Queue::V, #Name, place);                                                       \
    npu::compare(dst, npu::Operand<T>{a, steps.a_steps##BlkStride, steps.a_steps##RepStride},      \
                 b_operand, mode, repeats);                                                        \
  }
NPU_COMPARE(Compare, const LocalTensor<T>&, BinaryRepeatParams, src0, NPU_OPERAND(b, src1))
NPU_COMPARE(CompareScalar, std::type_identity_t<T>, UnaryRepeatParams, src, npu::in_a_row(b))
NPU_COMPARE(Compares, std::type_identity_t<T>, UnaryRepeatParams, src, npu::in_a_row(b))
#undef NPU_COMPARE

#define NPU_SELECT(B, b_operand)                                                              \
  NPU_BY_STEPS(                                                                               \
      Select, (typename T, typename U), T, T, BinaryRepeatParams,                             \
      (const LocalTensor<T>& dst, const LocalTensor<U>& chosen, const LocalTensor<T>& a, B b, \
       SELMODE mode),                                                                         \
      npu::select(lanes, NPU_OPERAND(dst, dst), chosen, NPU_OPERAND(a, src0), b_operand, mode);)
NPU_SELECT(const LocalTensor<T>&, NPU_OPERAND(b, src1))
NPU_SELECT(std::type_identity_t<T>, npu::in_a_row(b))
#undef NPU_SELECT

// Offsets count bytes; those of a repeat stand behind those of the one before.
template <typename T>
void gather(const npu::Operand<T>& to, const LocalTensor<T>& src,
            const LocalTensor<uint32_t>& offsets, uint32_t base, const npu::Lanes& lanes) {
  NPU_TAKES(Gather, int16_t, uint16_t, half, bfloat16_t, int32_t, uint32_t, float)
  const npu::Operand<uint32_t> at{offsets, 1, lanes.per() / 8};
  at.touch(lanes, false);
  npu::in_a_row(src).touch(npu::Lanes(0, 1), false);
  std::vector<T> found;
  lanes.each([&](uint64_t repeat, uint64_t lane) {
    const uint64_t bytes = uint64_t{base} + *at.at(repeat, lane);
    npu::require(
        bytes % sizeof(T) == 0, npu::parameter,
        "has the offset " + std::to_string(bytes) + ", which is no multiple of an element");
    const T* element = src.data() + bytes / sizeof(T);
    npu::reads(src.buffer(), element, sizeof(T));
    found.push_back(*element);
  });
  to.touch(lanes, true);
  lanes.each([&, next = found.begin()](uint64_t repeat, uint64_t lane) mutable {
    *to.at(repeat, lane) = *next++;
  });
}
NPU_BOTH_FORMS(Gather, (typename T), (T),
               (const LocalTensor<T>& dst, const LocalTensor<T>& src,
                const LocalTensor<uint32_t>& offsets, uint32_t base),
               (uint16_t repeat_step = 8), (uint16_t repeat_step),
               gather({dst, 1, repeat_step}, src, offsets, base, lanes);)

// Bits of a tensor, or one of seven patterns, choose elements; those that are chosen follow each
// other.
template <typename T, typename Chooses>
void gather_mask(const LocalTensor<T>& dst, const LocalTensor<T>& src, bool counted, uint32_t mask,
                 const GatherMaskParams& how, uint64_t& kept, Chooses chooses) {
  const uint64_t per = npu::repeat_bytes / sizeof(T);
  const uint64_t each = counted ? mask : per;
  const npu::Operand<T> from{src, how.src0BlockStride, how.src0RepeatStride};
  std::vector<T> found;
  for (uint64_t repeat = 0; repeat < how.repeatTimes; ++repeat) {
    for (uint64_t i = 0; i < each; ++i) {
      const T* element = from.at(repeat, i);
      npu::reads(src.buffer(), element, sizeof(T));
      if (chooses(repeat, i)) found.push_back(*element);
    }
  }
  kept = found.size();
  npu::in_a_row(dst).touch(npu::Lanes(kept, per), true);
  std::copy(found.begin(), found.end(), dst.data());
}
template <typename T>
void GatherMask(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint8_t pattern, bool counted,
                uint32_t mask, const GatherMaskParams& how, uint64_t& kept, Place place = here()) {
  npu::issue(npu::Queue::V, "GatherMask", place);
  npu::require(pattern >= 1 && pattern <= 7, npu::parameter,
               "has the pattern " + std::to_string(pattern) + "; there are 1 to 7");
  gather_mask(dst, src, counted, mask, how, kept, [pattern](uint64_t, uint64_t i) {
    return pattern == 7 || (pattern < 3 ? i % 2 == pattern - 1u : i % 4 == pattern - 3u);
  });
}
template <typename T, typename U>
void GatherMask(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<U>& chosen,
                bool counted, uint32_t mask, const GatherMaskParams& how, uint64_t& kept,
                Place place = here()) {
  static_assert(sizeof(T) == sizeof(U),
                "opsmith emulates no GatherMask by bits of another size than the elements");
  npu::issue(npu::Queue::V, "GatherMask", place);
  gather_mask(dst, src, counted, mask, how, kept, [&](uint64_t repeat, uint64_t i) {
    const auto* bits = reinterpret_cast<const uint8_t*>(chosen.data()) +
                       repeat * how.src1RepeatStride * npu::block_bytes + i / 8;
    npu::reads(chosen.buffer(), bits, 1);
    return (*bits >> i % 8 & 1) != 0;
  });
}

}  // namespace AscendC
