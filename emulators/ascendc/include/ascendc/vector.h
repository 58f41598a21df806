// Instructions of the vector unit that compute one element from others.
//
// After Memory矢量计算: SIMD计算说明 (masks, repeats, strides), 基础算术, 复合计算, 逻辑计算,
// 数据填充, 类型转换. Functions are computed in the precision of float, where the documents leave
// their accuracy open.
#pragma once

#include <ascendc/pipes.h>

#include <cmath>
#include <limits>
#include <type_traits>

namespace AscendC {

// Steps between blocks of 32 bytes, within a repeat and between two repeats.
struct BinaryRepeatParams {
  uint8_t dstBlkStride = 1, src0BlkStride = 1, src1BlkStride = 1;
  uint8_t dstRepStride = 8, src0RepStride = 8, src1RepStride = 8;
};
struct UnaryRepeatParams {
  uint16_t dstBlkStride = 1, srcBlkStride = 1;
  uint8_t dstRepStride = 8, srcRepStride = 8;
};

}  // namespace AscendC

namespace emulated::npu {

inline void require_repeats(uint64_t repeats) {
  require(repeats <= 255, parameter,
          "repeats " + std::to_string(repeats) + " times; it takes at most 255");
}

// The elements of a repeat that take part: the first ones, or those whose bit is set.
struct Mask {
  uint64_t first = 0;
  const uint64_t* bits = nullptr;

  template <typename N>
    requires std::is_integral_v<N>
  Mask(N number) : first(static_cast<uint64_t>(number)) {}
  Mask(const uint64_t* given) : bits(given) {}
};

// The elements that an instruction takes: `per` in each repeat of 256 bytes.
class Lanes {
 public:
  Lanes(uint64_t count, uint64_t per)
      : repeats_((count + per - 1) / per), per_(per), count_(count) {
    require(count <= unified_buffer, parameter,
            "takes " + std::to_string(static_cast<int64_t>(count)) +
                " elements; the unified buffer has " + std::to_string(unified_buffer) + " bytes");
    fill(per);
  }
  Lanes(Mask mask, uint64_t repeats, uint64_t per)
      : repeats_(repeats), per_(per), count_(repeats * per) {
    if (mask.bits != nullptr) {
      bits_ = {mask.bits[0], per > 64 ? mask.bits[1] : 0};
      return;
    }
    require(mask.first <= per, parameter,
            "has a mask of " + std::to_string(mask.first) + " elements; a repeat has " +
                std::to_string(per));
    fill(mask.first);
  }
  uint64_t repeats() const { return repeats_; }
  uint64_t per() const { return per_; }
  bool active(uint64_t repeat, uint64_t lane) const {
    return (bits_[lane / 64] >> lane % 64 & 1) != 0 && repeat * per_ + lane < count_;
  }
  template <typename Body>
  void each(Body body) const {
    for (uint64_t repeat = 0; repeat < repeats_; ++repeat) {
      for (uint64_t lane = 0; lane < per_; ++lane) {
        if (active(repeat, lane)) body(repeat, lane);
      }
    }
  }

 private:
  void fill(uint64_t count) {
    for (uint64_t lane = 0; lane < count; ++lane) bits_[lane / 64] |= uint64_t{1} << lane % 64;
  }

  uint64_t repeats_, per_, count_;
  std::array<uint64_t, 4> bits_{};
};

// The first elements. An instruction that is given their number sets the mask by itself, and resets
// it and its mode; of others, SetVectorMask says which elements.
template <typename T, bool given = true>
Lanes counted(uint64_t count) {
  constexpr uint64_t per = repeat_bytes / sizeof(T);
  if (given) {
    registers().counter_mode = false;
    registers().mask = {~uint64_t{0}, ~uint64_t{0}};
    return {count, per};
  }
  if (registers().counter_mode) return {registers().mask[0], per};
  require(count == 1, parameter,
          "takes the mask of SetVectorMask, and a count that is not 1: SetMaskCount() is missing");
  return {Mask(registers().mask.data()), 1, per};
}
// Those of a mask, or in counter mode as many as it says, in as many repeats as they take.
template <typename T, bool given = true>
Lanes masked(Mask mask, uint64_t repeats) {
  constexpr uint64_t per = repeat_bytes / sizeof(T);
  if (!given) mask = Mask(registers().mask.data());
  if (registers().counter_mode) return {mask.bits != nullptr ? mask.bits[0] : mask.first, per};
  require_repeats(repeats);
  return {mask, repeats, per};
}

// A tensor, and the steps between its blocks.
template <typename T>
struct Operand {
  const AscendC::LocalTensor<T>& tensor;
  uint64_t block_step, repeat_step;

  T* at(uint64_t repeat, uint64_t lane) const {
    constexpr uint64_t fit = block_bytes / sizeof(T);
    const uint64_t block = repeat * repeat_step + lane / fit * block_step;
    return tensor.data() + block * fit + lane % fit;
  }
  void touch(const Lanes& lanes, bool writes) const {
    require(reinterpret_cast<uintptr_t>(tensor.data()) % block_bytes == 0, parameter,
            "has a tensor at an address that is no multiple of 32 bytes");
    require(!writes || block_step != 0, parameter, "has a step of 0 between blocks that it writes");
    const T *begin = nullptr, *end = nullptr;
    lanes.each([&](uint64_t repeat, uint64_t lane) {
      const T* element = at(repeat, lane);
      if (element != end) {
        flush(begin, end, writes);
        begin = element;
      }
      end = element + 1;
    });
    flush(begin, end, writes);
  }

 private:
  void flush(const T* begin, const T* end, bool writes) const {
    if (begin == end) return;
    access(tensor.buffer(), begin, static_cast<uint64_t>(end - begin) * sizeof(T), writes);
  }
};

// Elements one after the other; those of a smaller type than another one fill less of a repeat.
template <typename T>
Operand<T> in_a_row(const AscendC::LocalTensor<T>& tensor) {
  return {tensor, 1, 8};
}

// Writes memory that an instruction keeps something in, which is nothing to whoever reads it.
template <typename T>
void scribble(const AscendC::LocalTensor<T>& buffer, uint64_t bytes) {
  if (bytes == 0) return;
  writes(buffer.buffer(), buffer.data(), bytes);
  std::memset(buffer.data(), 0xff, bytes);
}
// How much of it only the host's functions say: a block at least.
inline void scribble(const AscendC::LocalTensor<uint8_t>& buffer) {
  scribble(buffer, std::min<uint64_t>(buffer.GetLength(), block_bytes));
}

template <typename D, typename S>
using Wider = std::conditional_t<(sizeof(D) > sizeof(S)), D, S>;
template <typename Steps, typename D, typename S>
constexpr Steps steps_in_a_row() {
  Steps steps;
  steps.dstRepStride = 8 * sizeof(D) / sizeof(Wider<D, S>);
  constexpr uint8_t from = 8 * sizeof(S) / sizeof(Wider<D, S>);
  if constexpr (requires { steps.src1RepStride; }) {
    steps.src0RepStride = steps.src1RepStride = from;
  } else {
    steps.srcRepStride = from;
  }
  return steps;
}

// A number in place of a tensor.
template <typename T>
struct Constant {
  T number;

  const T* at(uint64_t, uint64_t) const { return &number; }
  void touch(const Lanes&, bool) const {}
};
template <typename T>
  requires std::is_convertible_v<T, float>
Constant<T> in_a_row(T number) {
  return {number};
}

// Computes body(elements...) for each element.
template <typename Body, typename D, typename... From>
void compute(const Lanes& lanes, Body body, Operand<D> to, const From&... from) {
  (from.touch(lanes, false), ...);
  to.touch(lanes, true);
  lanes.each([&](uint64_t repeat, uint64_t lane) {
    *to.at(repeat, lane) = body(read_from(from.at(repeat, lane))...);
  });
}

// Writes a number for each element, by its place.
template <typename T, typename Number>
void fill(const Lanes& lanes, const Operand<T>& to, Number number) {
  to.touch(lanes, true);
  lanes.each([&](uint64_t repeat, uint64_t lane) {
    *to.at(repeat, lane) = T(number(repeat * lanes.per() + lane));
  });
}

template <typename T, typename... Allowed>
inline constexpr bool is_one_of = (std::is_same_v<T, Allowed> || ...);

}  // namespace emulated::npu

namespace AscendC {

#define NPU_TAKES(Name, ...)                    \
  static_assert(npu::is_one_of<T, __VA_ARGS__>, \
                "opsmith emulates no " #Name " of other elements than " #__VA_ARGS__);

inline constexpr uint64_t MASK_PLACEHOLDER = 0, FULL_MASK = ~uint64_t{0};
enum class MaskMode : uint8_t { NORMAL = 0, COUNTER };
template <typename T, MaskMode mode = MaskMode::NORMAL>
void SetVectorMask(uint64_t high, uint64_t low) {
  npu::registers().mask = {low, high};
}
template <typename T, MaskMode mode = MaskMode::NORMAL>
void SetVectorMask(int32_t first) {
  if (mode == MaskMode::COUNTER) return SetVectorMask<T, mode>(0, static_cast<uint32_t>(first));
  const auto bits = [](int32_t count) {
    return count <= 0 ? 0 : count >= 64 ? FULL_MASK : (uint64_t{1} << count) - 1;
  };
  npu::registers().mask = {bits(first), bits(first - 64)};
}
inline void ResetMask() { npu::registers().mask = {FULL_MASK, FULL_MASK}; }
inline void SetMaskNorm() { npu::registers().counter_mode = false; }
inline void SetMaskCount() { npu::registers().counter_mode = true; }

// Both forms of an instruction: the first elements, one after the other, or those of a mask in
// repeats, in steps. The code has `lanes` and the steps.
#define NPU_UNPACK(...) __VA_ARGS__
#define NPU_BOTH_FORMS(Name, types, Lane, given, in_a_row, in_steps, ...)            \
  template <NPU_UNPACK types, bool mask_given = true>                                \
  void Name(NPU_UNPACK given, int32_t count, Place place = here()) {                 \
    npu::issue(npu::Queue::V, #Name, place);                                         \
    const auto lanes = npu::counted<NPU_UNPACK Lane, mask_given>(count);             \
    constexpr NPU_UNPACK in_a_row;                                                   \
    __VA_ARGS__                                                                      \
  }                                                                                  \
  template <NPU_UNPACK types, bool mask_given = true>                                \
  void Name(NPU_UNPACK given, npu::Mask mask, uint32_t repeats, NPU_UNPACK in_steps, \
            Place place = here()) {                                                  \
    npu::issue(npu::Queue::V, #Name, place);                                         \
    const auto lanes = npu::masked<NPU_UNPACK Lane, mask_given>(mask, repeats);      \
    __VA_ARGS__                                                                      \
  }
#define NPU_BY_STEPS(Name, types, D, S, Steps, given, ...)                                 \
  NPU_BOTH_FORMS(Name, types, (npu::Wider<D, S>), given,                                   \
                 (Steps steps = npu::steps_in_a_row<Steps, D, S>()), (const Steps& steps), \
                 __VA_ARGS__)
#define NPU_OPERAND(tensor, name) \
  npu::Operand { tensor, steps.name##BlkStride, steps.name##RepStride }

// Two tensors `x` and `y`.
#define NPU_BINARY(Name, expression, ...)                                                     \
  NPU_BY_STEPS(Name, (typename T), T, T, BinaryRepeatParams,                                  \
               (const LocalTensor<T>& dst, const LocalTensor<T>& a, const LocalTensor<T>& b), \
               NPU_TAKES(Name, __VA_ARGS__) npu::compute(                                     \
                   lanes, [](T x, T y) { return static_cast<T>(expression); },                \
                   NPU_OPERAND(dst, dst), NPU_OPERAND(a, src0), NPU_OPERAND(b, src1));)
NPU_BINARY(Add, x + y, int16_t, half, int32_t, float)
NPU_BINARY(Sub, x - y, int16_t, half, int32_t, float)
NPU_BINARY(Mul, x* y, int16_t, half, int32_t, float)
NPU_BINARY(Div, x / y, half, float)
NPU_BINARY(Max, x < y ? y : x, int16_t, half, int32_t, float)
NPU_BINARY(Min, y < x ? y : x, int16_t, half, int32_t, float)
NPU_BINARY(AddRelu, std::max<T>(x + y, T(0)), int16_t, half, float)
NPU_BINARY(SubRelu, std::max<T>(x - y, T(0)), int16_t, half, float)
NPU_BINARY(And, x& y, int16_t, uint16_t)
NPU_BINARY(Or, x | y, int16_t, uint16_t)
#undef NPU_BINARY

// One tensor `x`, and a number `s` where there is one.
#define NPU_UNARY_FORMS(Name, parameters, capture, expression, ...)               \
  NPU_BY_STEPS(Name, (typename T), T, T, UnaryRepeatParams,                       \
               (const LocalTensor<T>& dst, const LocalTensor<T>& src parameters), \
               NPU_TAKES(Name, __VA_ARGS__) npu::compute(                         \
                   lanes, [capture](T x) { return static_cast<T>(expression); },  \
                   NPU_OPERAND(dst, dst), NPU_OPERAND(src, src));)
#define NPU_COMMA ,
#define NPU_UNARY(Name, expression, ...) NPU_UNARY_FORMS(Name, , , expression, __VA_ARGS__)
#define NPU_SCALAR(Name, expression, ...) \
  NPU_UNARY_FORMS(Name, NPU_COMMA std::type_identity_t<T> s, s, expression, __VA_ARGS__)
NPU_UNARY(Exp, std::exp(float(x)), half, float)
NPU_UNARY(Ln, std::log(float(x)), half, float)
NPU_UNARY(Abs, std::fabs(float(x)), half, float)
NPU_UNARY(Sqrt, std::sqrt(float(x)), half, float)
NPU_UNARY(Rsqrt, 1.0f / std::sqrt(float(x)), half, float)
NPU_UNARY(Reciprocal, 1.0f / float(x), half, float)
NPU_UNARY(Relu, x < T(0) ? T(0) : x, half, int32_t, float)
NPU_UNARY(Not, ~x, int16_t, uint16_t)
NPU_SCALAR(Adds, x + s, int16_t, half, int32_t, float)
NPU_SCALAR(Muls, x* s, int16_t, half, int32_t, float)
NPU_SCALAR(Maxs, x < s ? s : x, int16_t, half, int32_t, float)
NPU_SCALAR(Mins, s < x ? s : x, int16_t, half, int32_t, float)
NPU_SCALAR(LeakyRelu, x < T(0) ? x * s : x, half, float)
NPU_SCALAR(ShiftLeft, x << s, int16_t, uint16_t, int32_t, uint32_t)
NPU_SCALAR(ShiftRight, x >> s, int16_t, uint16_t, int32_t, uint32_t)
#undef NPU_SCALAR
#undef NPU_UNARY
#undef NPU_COMMA
#undef NPU_UNARY_FORMS

// Those that add to what the destination held, which may be of a wider type.
#define NPU_ADDS_PRODUCT(Name, B, Steps, a_steps, b_operand)                             \
  NPU_BY_STEPS(                                                                          \
      Name, (typename T, typename U), T, U, Steps,                                       \
      (const LocalTensor<T>& dst, const LocalTensor<U>& a, B b),                         \
      static_assert(npu::is_one_of<T, U, float> && npu::is_one_of<U, half, float>,       \
                    "opsmith emulates no " #Name " of other elements than half, float"); \
      npu::compute(                                                                      \
          lanes, [](U x, U y, T held) { return T(float(x) * float(y) + float(held)); },  \
          NPU_OPERAND(dst, dst), NPU_OPERAND(a, a_steps), b_operand, NPU_OPERAND(dst, dst));)
NPU_ADDS_PRODUCT(Axpy, std::type_identity_t<U>, UnaryRepeatParams, src, npu::in_a_row(b))
NPU_ADDS_PRODUCT(MulAddDst, const LocalTensor<U>&, BinaryRepeatParams, src0, NPU_OPERAND(b, src1))
#undef NPU_ADDS_PRODUCT

#define NPU_FILL(Name, number, ...)                                                          \
  NPU_BOTH_FORMS(                                                                            \
      Name, (typename T), (T), (const LocalTensor<T>& dst, std::type_identity_t<T> value),   \
      (uint8_t block_step = 1, repeat_step = 8), (uint16_t block_step, uint8_t repeat_step), \
      NPU_TAKES(Name, __VA_ARGS__)                                                           \
          npu::fill(lanes, npu::Operand{dst, block_step, repeat_step}, number);)
NPU_FILL(
    Duplicate, [value](uint64_t) { return value; }, int16_t, uint16_t, half, bfloat16_t, int32_t,
    uint32_t, float)
NPU_FILL(
    CreateVecIndex, [value](uint64_t place) { return double(value) + double(place); }, int16_t,
    half, int32_t, float)
#undef NPU_FILL
template <typename T>
void ArithProgression(const LocalTensor<T>& dst, std::type_identity_t<T> first,
                      std::type_identity_t<T> step, int32_t count, Place place = here()) {
  NPU_TAKES(ArithProgression, int16_t, half, int32_t, float)
  npu::issue(npu::Queue::V, "ArithProgression", place);
  npu::fill(npu::counted<T>(count), npu::in_a_row(dst),
            [=](uint64_t place) { return first + step * double(place); });
}

struct BrcbRepeatParams {
  uint16_t dstBlkStride = 1, dstRepStride = 8;
};
// Fills a block with each of 8 elements, in each repeat.
template <typename T>
void Brcb(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint32_t repeats,
          const BrcbRepeatParams& steps, Place place = here()) {
  npu::issue(npu::Queue::V, "Brcb", place);
  constexpr uint64_t fit = npu::block_bytes / sizeof(T);
  npu::in_a_row(src).touch(npu::Lanes(repeats * 8, npu::repeat_bytes / sizeof(T)), false);
  const npu::Operand<T> to{dst, steps.dstBlkStride, steps.dstRepStride};
  const npu::Lanes lanes(8 * fit, repeats, 8 * fit);
  to.touch(lanes, true);
  lanes.each([&](uint64_t repeat, uint64_t lane) {
    *to.at(repeat, lane) = src.data()[repeat * 8 + lane / fit];
  });
}

enum class RoundMode {
  CAST_NONE = 0,
  CAST_RINT,
  CAST_FLOOR,
  CAST_CEIL,
  CAST_ROUND,
  CAST_TRUNC,
  CAST_ODD
};

}  // namespace AscendC

namespace emulated::npu {

inline double rounded(double x, AscendC::RoundMode mode) {
  const double nearest = std::nearbyint(x), below = std::floor(x), above = std::ceil(x);
  const double odd = std::fmod(below, 2) == 0 ? above : below;
  const double by_mode[] = {nearest, nearest, below, above, std::round(x), std::trunc(x), odd};
  return by_mode[static_cast<int>(mode)];
}

// To an integer, out of whose range the nearest one is taken; or to a float, where `mode` counts in
// units of the last place.
template <typename D, typename S>
D converted(S source, AscendC::RoundMode mode) {
  using Limits = std::numeric_limits<D>;
  if constexpr (std::is_integral_v<D> && std::is_integral_v<S>) {
    return static_cast<D>(std::clamp<int64_t>(source, Limits::min(), Limits::max()));
  } else if constexpr (std::is_integral_v<D>) {
    const double x = rounded(static_cast<float>(source), mode);
    if (std::isnan(x)) return 0;
    if (x >= static_cast<double>(Limits::max())) return Limits::max();
    return x <= static_cast<double>(Limits::min()) ? Limits::min() : static_cast<D>(x);
  } else {
    const auto x = static_cast<float>(source);
    if constexpr (std::is_same_v<D, half> && std::is_same_v<S, int32_t>) {
      require(!std::isnan(registers().scale), parameter,
              "takes int32_t to half before SetDeqScale, by whose number it multiplies");
      return static_cast<D>(x * registers().scale);
    }
    if constexpr (std::is_same_v<D, S>) return static_cast<D>(rounded(x, mode));
    const D nearest = static_cast<D>(x);
#ifdef OPSMITH_EXACT
    return nearest;
#else
    const float back = static_cast<float>(nearest);
    const bool usual =
        mode == AscendC::RoundMode::CAST_NONE || mode == AscendC::RoundMode::CAST_RINT;
    if (usual || sizeof(D) != 2 || back == x || !std::isfinite(back)) return nearest;
    // The unit of the last place of a half is 2^-10 of the power below, of a bfloat16 2^-7.
    const int digits = std::is_same_v<D, half> ? 10 : 7,
              least = std::is_same_v<D, half> ? -24 : -133;
    const float unit = std::ldexp(1.0f, std::max(std::ilogb(x) - digits, least));
    return static_cast<D>(static_cast<float>(rounded(x / unit, mode)) * unit);
#endif
  }
}

}  // namespace emulated::npu

namespace AscendC {

inline void SetDeqScale(half scale) { npu::registers().scale = scale; }

NPU_BY_STEPS(Cast, (typename D, typename S), D, S, UnaryRepeatParams,
             (const LocalTensor<D>& dst, const LocalTensor<S>& src, RoundMode mode),
             npu::compute(
                 lanes, [mode](S x) { return npu::converted<D>(x, mode); }, NPU_OPERAND(dst, dst),
                 NPU_OPERAND(src, src));)

}  // namespace AscendC
