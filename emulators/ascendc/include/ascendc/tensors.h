// LocalTensor and GlobalTensor, whose elements the scalar unit reads and writes.
//
// After 数据结构/LocalTensor, 数据结构/GlobalTensor, and for `c = a + b` 基础算术/Add (整个tensor
// 参与计算) and its kin.
#pragma once

#include <ascendc/machine.h>
#include <emulated/half.h>

#ifndef OPSMITH_EXACT  // which has types of its own
OPSMITH_SHORT_CLASS(half, half_raw, to_half, from_half)
OPSMITH_SHORT_OPERATORS(half)
OPSMITH_SHORT_CLASS(bfloat16_t, bfloat16_raw, to_bfloat16, from_bfloat16)
OPSMITH_SHORT_OPERATORS(bfloat16_t)
#endif

#ifdef OPSMITH_EXACT  // a literal beside a number has another type
using std::max;
using std::min;
#else
template <typename T>
constexpr T min(T x, T y) {
  return y < x ? y : x;
}
template <typename T>
constexpr T max(T x, T y) {
  return x < y ? y : x;
}
#endif

namespace emulated::npu {

// Refuses to read what is a number, and has no bits, as another type.
template <typename T, typename U>
constexpr void require_same_bits() {
#ifdef OPSMITH_EXACT
  constexpr bool same = std::is_integral_v<T> == std::is_integral_v<U>;
  static_assert(same || sizeof(T) == 1 || sizeof(U) == 1 || (sizeof(T) == 4 && sizeof(U) == 4),
                "opsmith exact: ReinterpretCast between a number and another type");
#endif
}
template <typename T>
T read_from(const T* element) {
#ifdef OPSMITH_EXACT
  if constexpr (std::is_integral_v<T> && sizeof(T) == 4) {
    opsmith::exact::require_no_place(static_cast<uint32_t>(*element));
  }
#endif
  return *element;
}

// An element that the scalar unit accesses.
template <typename T>
class Element {
 public:
  Element(const Buffer* buffer, T* at, Place place) : buffer_(buffer), at_(at), place_(place) {}
  operator T() const {
    issue(Queue::S, "GetValue", place_);
    reads(buffer_, at_, sizeof(T));
    return read_from(at_);
  }
  const Element& operator=(T value) const {
    issue(Queue::S, "SetValue", place_);
    writes(buffer_, at_, sizeof(T));
    *at_ = value;
    return *this;
  }
  const Element& operator=(const Element& other) const { return *this = static_cast<T>(other); }
  const Element& operator+=(T value) const { return *this = static_cast<T>(*this) + value; }

 private:
  const Buffer* buffer_;
  T* at_;
  Place place_;
};

// Numbers that are never rounded have operators for their own class alone.
#ifdef OPSMITH_EXACT
template <typename T>
const T& value_of(const T& number) {
  return number;
}
template <typename T>
T value_of(const Element<T>& element) {
  return element;
}
template <typename T>
concept element = requires(const T& one) { []<typename U>(const Element<U>&) {}(one); };
#define NPU_OPERATOR(sign)                     \
  template <typename A, typename B>            \
    requires element<A> || element<B>          \
  auto operator sign(const A& a, const B& b) { \
    return value_of(a) sign value_of(b);       \
  }
NPU_OPERATOR(+)
NPU_OPERATOR(-)
NPU_OPERATOR(*)
NPU_OPERATOR(/)
NPU_OPERATOR(<)
NPU_OPERATOR(>)
NPU_OPERATOR(<=)
NPU_OPERATOR(>=)
NPU_OPERATOR(==)
NPU_OPERATOR(!=)
#undef NPU_OPERATOR
#endif

// What `a + b` computes when it is assigned to a tensor.
template <typename Run>
struct Whole {
  Run run;
};
// The first operand of such an expression, whose line messages name.
template <typename Tensor>
struct Placed {
  Tensor tensor;
  Place place;

  Placed(const Tensor& given, Place its_place = here()) : tensor(given), place(its_place) {}
};

}  // namespace emulated::npu

namespace AscendC {

using emulated::here;
using emulated::Place;
namespace npu = emulated::npu;

enum class CMPMODE : uint8_t { LT = 0, GT, EQ, LE, GE, NE };
// A hint, which changes no result.
enum class CacheMode : uint8_t { CACHE_MODE_DISABLE, CACHE_MODE_NORMAL };

enum class TPosition : uint8_t {
  GM,
  A1,
  A2,
  B1,
  B2,
  C1,
  C2,
  CO1,
  CO2,
  VECIN,
  VECOUT,
  VECCALC,
  LCM = VECCALC
};
using QuePosition = TPosition;

inline constexpr int32_t ONE_BLK_SIZE = npu::block_bytes, ONE_REPEAT_BYTE_SIZE = npu::repeat_bytes;
constexpr uint32_t DivCeil(uint32_t x, uint32_t y) { return y == 0 ? 0 : (x + y - 1) / y; }
constexpr uint32_t AlignUp(uint32_t x, uint32_t y) { return DivCeil(x, y) * y; }
constexpr uint32_t Ceil(uint32_t x, uint32_t y) { return DivCeil(x, y); }
inline constexpr int32_t B32_BYTE_SIZE = 4, B32_DATA_NUM_PER_BLOCK = 8,
                         B32_DATA_NUM_PER_REPEAT = 64, ONE_REPEAT_FLOAT_SIZE = 64;

template <typename T>
class LocalTensor {
 public:
  using PrimType = T;

  LocalTensor() = default;
  LocalTensor(npu::Buffer* buffer, char* data, uint64_t bytes)
      : buffer_(buffer), data_(reinterpret_cast<T*>(data)), size_(bytes / sizeof(T)) {}

  LocalTensor operator[](uint32_t offset) const {
    LocalTensor rest = *this;
    rest.data_ += offset;
    rest.size_ = offset < size_ ? size_ - offset : 0;
    return rest;
  }
  T GetValue(uint32_t index, Place place = here()) const { return (*this)(index, place); }
  template <typename U>
  void SetValue(uint32_t index, U value, Place place = here()) const {
    (*this)(index, place) = static_cast<T>(value);
  }
  npu::Element<T> operator()(uint32_t index, Place place = here()) const {
    return {buffer_, data_ + index, place};
  }
  template <typename U>
  LocalTensor<U> ReinterpretCast() const {
    npu::require_same_bits<T, U>();
    return {buffer_, reinterpret_cast<char*>(data_), size_ * sizeof(T)};
  }
  // The elements that a whole tensor computes are those of the destination.
  template <typename Run>
  void operator=(const npu::Whole<Run>& whole) const {
    whole.run(*this);
  }
#define NPU_OPERATOR(sign, Name, ...)                                                             \
  friend auto operator sign(npu::Placed<LocalTensor> a, const LocalTensor& b) {                   \
    return npu::Whole{[a, b](const auto& dst) { Name(dst, a.tensor, b, __VA_ARGS__, a.place); }}; \
  }
  NPU_OPERATOR(+, Add, dst.GetSize())
  NPU_OPERATOR(-, Sub, dst.GetSize())
  NPU_OPERATOR(*, Mul, dst.GetSize())
  NPU_OPERATOR(/, Div, dst.GetSize())
  NPU_OPERATOR(&, And, dst.GetSize())
  NPU_OPERATOR(|, Or, dst.GetSize())
  NPU_OPERATOR(<, Compare, CMPMODE::LT, b.GetSize())
  NPU_OPERATOR(>, Compare, CMPMODE::GT, b.GetSize())
  NPU_OPERATOR(==, Compare, CMPMODE::EQ, b.GetSize())
  NPU_OPERATOR(<=, Compare, CMPMODE::LE, b.GetSize())
  NPU_OPERATOR(>=, Compare, CMPMODE::GE, b.GetSize())
  NPU_OPERATOR(!=, Compare, CMPMODE::NE, b.GetSize())
#undef NPU_OPERATOR

  // Accesses by way of an address are not seen.
  uint64_t GetPhyAddr(uint32_t offset = 0) const {
    return reinterpret_cast<uint64_t>(data_ + offset);
  }
  uint32_t GetSize() const { return size_; }
  uint32_t GetLength() const { return size_ * sizeof(T); }
  void SetSize(uint32_t size) { size_ = size; }

  npu::Buffer* buffer() const { return buffer_; }
  T* data() const { return data_; }

 private:
  npu::Buffer* buffer_ = nullptr;
  T* data_ = nullptr;
  uint32_t size_ = 0;
};

template <typename T>
class GlobalTensor {
 public:
  using PrimType = T;

  void SetGlobalBuffer(T* data, uint64_t size = 0) {
    data_ = data;
    size_ = size;
  }
  GlobalTensor operator[](uint64_t offset) const {
    GlobalTensor rest;
    rest.SetGlobalBuffer(data_ + offset, offset < size_ ? size_ - offset : 0);
    return rest;
  }
  T GetValue(uint64_t offset, Place place = here()) const { return (*this)(offset, place); }
  void SetValue(uint64_t offset, T value, Place place = here()) const {
    (*this)(offset, place) = value;
  }
  npu::Element<T> operator()(uint64_t offset, Place place = here()) const {
    return {nullptr, data_ + offset, place};
  }
  template <typename U>
  GlobalTensor<U> ReinterpretCast() const {
    npu::require_same_bits<T, U>();
    GlobalTensor<U> other;
    other.SetGlobalBuffer(reinterpret_cast<U*>(data_), size_ * sizeof(T) / sizeof(U));
    return other;
  }
  void SetL2CacheHint(CacheMode) {}
  uint64_t GetSize() const { return size_; }
  T* GetPhyAddr(uint64_t offset = 0) const { return data_ + offset; }

  static npu::Buffer* buffer() { return nullptr; }  // it has none
  T* data() const { return data_; }

 private:
  T* data_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace AscendC
