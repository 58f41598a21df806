// Copies between global memory and the unified buffer, and within the unified buffer.
//
// After Memory矢量计算/数据搬运 (DataCopy, DataCopyPad) and 原子操作.
#pragma once

#include <ascendc/pipes.h>

namespace AscendC {

// Blocks of 32 bytes; in DataCopyPad, of `blockLen` bytes.
struct DataCopyParams {
  uint16_t blockCount = 1;
  uint16_t blockLen = 0;
  uint16_t srcStride = 0;
  uint16_t dstStride = 0;
};
struct DataCopyExtParams {
  uint16_t blockCount = 1;
  uint32_t blockLen = 0;
  uint32_t srcStride = 0;
  uint32_t dstStride = 0;
  uint32_t rsv = 0;  // reserved

  DataCopyExtParams() = default;
  // Of five numbers, so that four are those of DataCopyParams.
  DataCopyExtParams(uint16_t count, uint32_t length, uint32_t source, uint32_t destination,
                    uint32_t reserved)
      : blockCount(count),
        blockLen(length),
        srcStride(source),
        dstStride(destination),
        rsv(reserved) {}
};
struct DataCopyPadParams {
  bool isPad = false;
  uint8_t leftPadding = 0;
  uint8_t rightPadding = 0;
  uint64_t paddingValue = 0;
};
template <typename T>
struct DataCopyPadExtParams {
  bool isPad = false;
  uint8_t leftPadding = 0;
  uint8_t rightPadding = 0;
  T paddingValue = T(0);
};

}  // namespace AscendC

namespace emulated::npu {

// Rows of bytes, with the distance between the starts of two of them.
struct Rows {
  uint64_t count, bytes, from_step, to_step;
};

template <typename T>
void store(T* to, const T* from, uint64_t count) {
  const Atomic how = registers().atomic;
  for (uint64_t i = 0; i < count; ++i) {
    const T x = from[i], held = to[i];
    const bool takes = how == Atomic::none || (how == Atomic::max ? held < x : x < held);
    to[i] = how == Atomic::add ? static_cast<T>(held + x) : takes ? x : held;
  }
}

// Copies rows.
template <typename Dst, typename Src>
void copy(const Dst& dst, const Src& src, Rows rows) {
  using T = typename Dst::PrimType;
  if (dst.buffer() != nullptr) require_aligned(dst.data(), block_bytes, "a destination");
  if (src.buffer() != nullptr) require_aligned(src.data(), block_bytes, "a source");
  T* to = dst.data();
  const T* from = src.data();
  const uint64_t count = rows.bytes / sizeof(T);
  require(rows.bytes % sizeof(T) == 0, parameter, "copies parts of elements");
  for (uint64_t row = 0; row < rows.count && count != 0; ++row) {
    reads(src.buffer(), from, rows.bytes);
    writes(dst.buffer(), to, rows.bytes);
    if (dst.buffer() == nullptr) {
      store(to, from, count);
    } else {
      std::memmove(to, from, rows.bytes);
    }
    from = reinterpret_cast<const T*>(reinterpret_cast<const char*>(from) + rows.from_step);
    to = reinterpret_cast<T*>(reinterpret_cast<char*>(to) + rows.to_step);
  }
}

inline Rows whole_blocks(const AscendC::DataCopyParams& how) {
  const uint64_t bytes = how.blockLen * block_bytes;
  return {how.blockCount, bytes, bytes + how.srcStride * block_bytes,
          bytes + how.dstStride * block_bytes};
}

// One row of elements, as many as fill whole blocks.
template <typename T>
Rows one_row(uint32_t count) {
  const uint64_t bytes = uint64_t{count} * sizeof(T), whole = bytes / block_bytes * block_bytes;
  if (whole != bytes) {
    suspect("copies " + std::to_string(whole) + " of " + std::to_string(bytes) +
            " bytes: it takes whole blocks of 32 bytes, and DataCopyPad takes any number");
  }
  return {1, whole, 0, 0};
}

template <typename How>
void check_ranges(const How& how) {
  require(how.blockCount <= 4095, parameter,
          "has blockCount " + std::to_string(how.blockCount) + "; there are at most 4095");
  require(how.blockLen <= 2097151, parameter,
          "has blockLen " + std::to_string(how.blockLen) + "; it is at most 2097151 bytes");
}

}  // namespace emulated::npu

namespace AscendC {

#define NPU_COPY(queue, Dst, Src)                                                             \
  template <typename T>                                                                       \
  void DataCopy(const Dst<T>& dst, const Src<T>& src, const DataCopyParams& how,              \
                Place place = here()) {                                                       \
    npu::issue(npu::Queue::queue, "DataCopy", place);                                         \
    npu::check_ranges(how);                                                                   \
    npu::copy(dst, src, npu::whole_blocks(how));                                              \
  }                                                                                           \
  template <typename T>                                                                       \
  void DataCopy(const Dst<T>& dst, const Src<T>& src, uint32_t count, Place place = here()) { \
    npu::issue(npu::Queue::queue, "DataCopy", place);                                         \
    npu::copy(dst, src, npu::one_row<T>(count));                                              \
  }
NPU_COPY(MTE2, LocalTensor, GlobalTensor)
NPU_COPY(MTE3, GlobalTensor, LocalTensor)
NPU_COPY(V, LocalTensor, LocalTensor)
#undef NPU_COPY

template <typename T, typename How, typename Padding>
void pad_copy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const How& how,
              const Padding& padding, Place place) {
  npu::issue(npu::Queue::MTE2, "DataCopyPad", place);
  npu::check_ranges(how);
  npu::require_aligned(dst.data(), npu::block_bytes, "a destination");
  npu::require(how.blockLen % sizeof(T) == 0, npu::parameter, "copies parts of elements");
  const uint64_t left = padding.leftPadding * sizeof(T), right = padding.rightPadding * sizeof(T);
  npu::require(left <= 32 && right <= 32, npu::parameter, "pads with more than 32 bytes");
  const uint64_t whole = npu::rounded_up(left + how.blockLen + right);
  const uint64_t step = whole + how.dstStride * npu::block_bytes;
  for (uint64_t row = 0; row < how.blockCount && how.blockLen != 0; ++row) {
    const uint64_t from = row * (how.blockLen + how.srcStride);
    const T* source =
        reinterpret_cast<const T*>(reinterpret_cast<const char*>(src.GetPhyAddr()) + from);
    char* to = reinterpret_cast<char*>(dst.data()) + row * step;
    npu::reads(nullptr, source, how.blockLen);
    npu::writes(dst.buffer(), to, whole);
    // Without a value, the hardware fills the rest with the first element where nothing is padded,
    // and otherwise with anything.
    const bool anything = !padding.isPad && left + right != 0;
    const T value = padding.isPad ? static_cast<T>(padding.paddingValue) : *source;
    auto* element = reinterpret_cast<T*>(to);
    for (uint64_t i = 0; i < whole / sizeof(T); ++i) element[i] = value;
    if (anything) std::memset(to, 0xff, whole);
    std::memcpy(to + left, source, how.blockLen);
  }
}
template <typename T, typename How>
void copy_out(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const How& how, Place place) {
  npu::issue(npu::Queue::MTE3, "DataCopyPad", place);
  npu::check_ranges(how);
  npu::copy(dst, src,
            {how.blockCount, how.blockLen,
             npu::rounded_up(how.blockLen) + how.srcStride * npu::block_bytes,
             uint64_t{how.blockLen} + how.dstStride});
}
#define NPU_PAD(How, Padding)                                                             \
  template <typename T>                                                                   \
  void DataCopyPad(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const How& how, \
                   const Padding& padding, Place place = here()) {                        \
    pad_copy(dst, src, how, padding, place);                                              \
  }                                                                                       \
  template <typename T>                                                                   \
  void DataCopyPad(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const How& how, \
                   Place place = here()) {                                                \
    copy_out(dst, src, how, place);                                                       \
  }
NPU_PAD(DataCopyParams, DataCopyPadParams)
NPU_PAD(DataCopyExtParams, DataCopyPadExtParams<T>)
#undef NPU_PAD

// Fills global memory, and waits until it is filled.
template <typename T>
void InitGlobalMemory(GlobalTensor<T>& tensor, uint64_t size, std::type_identity_t<T> value,
                      Place place = here()) {
  npu::issue(npu::Queue::MTE3, "InitGlobalMemory", place);
  npu::writes(nullptr, tensor.GetPhyAddr(), size * sizeof(T));
  std::fill_n(tensor.GetPhyAddr(), size, value);
  npu::barrier_of_all();
}
template <typename T>
void InitOutput(GlobalTensor<T> tensor, uint64_t size, T value = T(0), Place place = here()) {
  InitGlobalMemory(tensor, size, value, place);
}

enum class CacheLine : uint8_t { SINGLE_CACHE_LINE, ENTIRE_DATA_CACHE };
enum class DcciDst : uint8_t { CACHELINE_ALL, CACHELINE_UB, CACHELINE_OUT, CACHELINE_ATOMIC };
// A scalar access is seen at once here; what the cache of a core would hide is not emulated.
template <typename T, CacheLine whole, DcciDst target = DcciDst::CACHELINE_ALL, typename Tensor>
void DataCacheCleanAndInvalid(const Tensor&) {}

#define NPU_ATOMIC(Name, what)                   \
  template <typename T>                          \
  void Name() {                                  \
    npu::registers().atomic = npu::Atomic::what; \
  }
NPU_ATOMIC(SetAtomicAdd, add)
NPU_ATOMIC(SetAtomicMax, max)
NPU_ATOMIC(SetAtomicMin, min)
#undef NPU_ATOMIC
inline void SetAtomicNone() { npu::registers().atomic = npu::Atomic::none; }
inline void DisableDmaAtomic() { npu::registers().atomic = npu::Atomic::none; }

}  // namespace AscendC
