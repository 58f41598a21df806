// Blocks that are transposed.
//
// After Memory矢量计算/数据排布转换 (TransDataTo5HD, Transpose).
#pragma once

#include <ascendc/vector.h>

namespace AscendC {

inline constexpr int32_t NCHW_CONV_ADDR_LIST_SIZE = 16;
struct TransDataTo5HDParams {
  bool dstHighHalf = false, srcHighHalf = false;
  uint16_t repeatTimes = 1, dstRepStride = 0, srcRepStride = 0;
};

// Transposes 16 blocks of 32 bytes into 16 others; of bytes, a half of each.
template <typename T>
void TransDataTo5HD(const uint64_t dst[16], const uint64_t src[16], const TransDataTo5HDParams& how,
                    Place place = here()) {
  NPU_TAKES(TransDataTo5HD, int8_t, uint8_t, int16_t, uint16_t, half, int32_t, uint32_t, float)
  npu::issue(npu::Queue::V, "TransDataTo5HD", place);
  npu::require_repeats(how.repeatTimes);
  constexpr uint32_t fit = npu::block_bytes / sizeof(T), per = std::min(fit, 16u);
  const auto part = [](uint64_t address, uint64_t step, bool high, bool writes) {
    T* at = reinterpret_cast<T*>(address);
    npu::require_aligned(at, npu::block_bytes, "a block");
    at += step * fit + (high && fit > per ? per : 0);
    npu::access(&npu::buffer_with(address), at, per * sizeof(T), writes);
    return at;
  };
  for (uint64_t repeat = 0; repeat < how.repeatTimes; ++repeat) {
    // One repeat alone begins a step behind the lists.
    const uint64_t step = how.repeatTimes == 1 ? 1 : repeat;
    std::array<T, 16 * per> found;
    for (uint32_t i = 0; i < 16; ++i) {
      const T* from = part(src[i], step * how.srcRepStride, how.srcHighHalf, false);
      for (uint32_t row = 0; row < per; ++row) found[row * 16 + i] = from[row];
    }
    for (uint32_t i = 0; i < 16; ++i) {
      T* to = part(dst[i], step * how.dstRepStride, how.dstHighHalf, true);
      std::copy_n(&found[i * per], per, to);
    }
  }
}
// Of 16 rows.
template <typename T>
void Transpose(const LocalTensor<T>& dst, const LocalTensor<T>& src, Place place = here()) {
  NPU_TAKES(Transpose, int16_t, uint16_t, half)
  uint64_t to[16], from[16];
  for (uint32_t i = 0; i < 16; ++i)
    to[i] = dst.GetPhyAddr(16 * i), from[i] = src.GetPhyAddr(16 * i);
  TransDataTo5HD<T>(to, from, {}, place);
}

}  // namespace AscendC
