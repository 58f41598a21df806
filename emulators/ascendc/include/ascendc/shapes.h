// Tensors of one or two dimensions: repeated along one of them, summed by rows, copied by blocks.
//
// After 高阶API/张量变换/Broadcast, 高阶API/归约操作/Sum and 数据搬运/Copy.
#pragma once

#include <ascendc/copies.h>
#include <ascendc/reductions.h>

namespace AscendC {

struct SumParams {
  uint32_t outter = 1;
  uint32_t inner;
  uint32_t n;
};
struct CopyRepeatParams {
  uint16_t dstStride = 1, srcStride = 1;
  uint16_t dstRepeatSize = 8, srcRepeatSize = 8;
};

}  // namespace AscendC

namespace emulated::npu {

template <typename T, typename U>
void require_apart(const AscendC::LocalTensor<T>& a, uint64_t a_count,
                   const AscendC::LocalTensor<U>& b, uint64_t b_count) {
  const auto *begin = reinterpret_cast<const char*>(a.data()),
             *other = reinterpret_cast<const char*>(b.data());
  require(begin + a_count * sizeof(T) <= other || other + b_count * sizeof(U) <= begin, parameter,
          "has a result that overlaps with its argument");
}

}  // namespace emulated::npu

namespace AscendC {

// Repeats what has the length 1 in the dimension `axis`.
template <typename T, int32_t dim, int32_t axis, bool reuses = false, typename... Buffer>
void Broadcast(npu::Placed<LocalTensor<T>> placed, const LocalTensor<T>& src,
               const uint32_t to[dim], const uint32_t from[dim], const Buffer&... buffer) {
  NPU_TAKES(Broadcast, int8_t, uint8_t, half, float)
  static_assert(dim >= 1 && dim <= 2 && axis >= 0 && axis < dim,
                "opsmith emulates no Broadcast of more than two dimensions");
  npu::issue(npu::Queue::V, "Broadcast", placed.place);
  const LocalTensor<T>& dst = placed.tensor;
  npu::require_aligned(dst.data(), npu::block_bytes, "a destination");
  npu::require_aligned(src.data(), npu::block_bytes, "a source");
  for (int32_t i = 0; i < dim; ++i) {
    npu::require(from[i] == (i == axis ? 1 : to[i]), npu::parameter,
                 "has " + std::to_string(from[i]) + " elements in dimension " + std::to_string(i) +
                     ", to be " + std::to_string(to[i]) + "; it repeats 1 in dimension " +
                     std::to_string(axis) + " alone");
  }
  constexpr bool rows = dim == 2 && axis == 0;
  npu::require(!rows || from[dim - 1] * sizeof(T) % npu::block_bytes == 0, npu::parameter,
               "repeats a row of " + std::to_string(from[dim - 1]) +
                   " elements, which fill no multiple of 32 bytes");
  const uint64_t width = to[dim - 1], height = dim == 2 ? to[0] : 1;
  const uint64_t count = rows ? width : height;
  npu::require_apart(dst, width * height, src, count);
  npu::reads(src.buffer(), src.data(), count * sizeof(T));
  (npu::scribble(buffer), ...);
  npu::writes(dst.buffer(), dst.data(), width * height * sizeof(T));
  for (uint64_t i = 0; i < width * height; ++i) {
    dst.data()[i] = src.data()[rows ? i % width : i / width];
  }
}
// The older name.
template <typename T, int32_t dim, int32_t axis, bool reuses = false, typename... Buffer>
void BroadCast(npu::Placed<LocalTensor<T>> dst, const LocalTensor<T>& src, const uint32_t to[dim],
               const uint32_t from[dim], const Buffer&... buffer) {
  Broadcast<T, dim, axis>(dst, src, to, from, buffer...);
}

// Sums each row, as ReduceSum does.
template <typename T, int32_t reduced = -1, bool reuses = false, bool basic = false>
void Sum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const SumParams& how,
         Place place = here()) {
  NPU_TAKES(Sum, half, float)
  npu::issue(npu::Queue::V, "Sum", place);
  npu::require_aligned(dst.data(), npu::block_bytes, "a destination");
  const uint64_t whole = npu::rounded_up(how.n * sizeof(T)) / sizeof(T);
  npu::require(how.n >= 1 && how.inner == whole, npu::parameter,
               "has rows of " + std::to_string(how.n) + " elements that are " +
                   std::to_string(how.inner) + " apart; expected " + std::to_string(whole) +
                   ", which fill a multiple of 32 bytes");
  npu::require_apart(dst, how.outter, src, uint64_t{how.outter} * how.inner);
  for (uint32_t row = 0; row < how.outter; ++row) {
    const LocalTensor<T> from = src[row * how.inner];
    const auto parts = npu::by_repeats<npu::Sum>(npu::in_a_row(from), npu::counted<T>(how.n));
    npu::put(dst, row, npu::SumInOrder()(parts).value);
  }
}
template <typename T, int32_t reduced = -1, bool reuses = false, bool basic = false>
void Sum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint8_t>& buffer,
         const SumParams& how, Place place = here()) {
  Sum<T>(dst, src, how, place);
  npu::scribble(buffer);
}

// Copies elements that a mask chooses. In counter mode the mask counts those of each repeat.
template <typename T, bool mask_given = true>
void Copy(const LocalTensor<T>& dst, const LocalTensor<T>& src, npu::Mask mask, uint32_t repeats,
          const CopyRepeatParams& steps, Place place = here()) {
  NPU_TAKES(Copy, int16_t, uint16_t, half, bfloat16_t, int32_t, uint32_t, float)
  npu::issue(npu::Queue::V, "Copy", place);
  npu::require(steps.dstRepeatSize <= 4095 && steps.srcRepeatSize <= 4095, npu::parameter,
               "has a step of more than 4095 blocks between repeats");
  npu::require_repeats(repeats);
  constexpr uint32_t fit = npu::block_bytes / sizeof(T);
  for (uint32_t repeat = 0; repeat < repeats; ++repeat) {
    const LocalTensor<T> to = dst[repeat * steps.dstRepeatSize * fit],
                         from = src[repeat * steps.srcRepeatSize * fit];
    npu::compute(
        npu::masked<T, mask_given>(mask, 1), [](T x) { return x; },
        npu::Operand<T>{to, steps.dstStride, steps.dstStride * 8u},
        npu::Operand<T>{from, steps.srcStride, steps.srcStride * 8u});
  }
}

}  // namespace AscendC
