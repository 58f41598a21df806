// Functions of elements, which may take a buffer, and functions of numbers.
//
// After 高阶API/数学计算 and 标量计算; names of before CANN 9 after 附录/接口变更说明.
#pragma once

#include <ascendc/vector.h>

#include <bit>

namespace emulated::npu {

// The count of functions that take a whole tensor.
inline constexpr int32_t whole = std::numeric_limits<int32_t>::min();
template <typename T>
uint64_t count_of(int32_t count, const AscendC::LocalTensor<T>& tensor) {
  return count == whole ? tensor.GetSize() : static_cast<uint64_t>(count);
}
// Numbers of 16 bits have the arithmetic of float.
template <typename T>
auto wide(T number) {
  return static_cast<std::conditional_t<std::is_integral_v<T>, T, float>>(number);
}

}  // namespace emulated::npu

namespace AscendC {

// Functions that may take a buffer of their own, or no count.
#define NPU_FORMS(Name, given, names, tensor, ...)                                           \
  template <typename T, bool reuses = false>                                                 \
  void Name(const LocalTensor<T>& dst, NPU_UNPACK given, int32_t count = npu::whole,         \
            Place place = here()) {                                                          \
    npu::issue(npu::Queue::V, #Name, place);                                                 \
    const npu::Lanes lanes = npu::counted<T>(npu::count_of(count, tensor));                  \
    const auto compute = [&](const auto&... from) {                                          \
      npu::compute(lanes, __VA_ARGS__, npu::in_a_row(dst), npu::in_a_row(from)...);          \
    };                                                                                       \
    compute(NPU_UNPACK names);                                                               \
  }                                                                                          \
  template <typename T, bool reuses = false>                                                 \
  void Name(const LocalTensor<T>& dst, NPU_UNPACK given, const LocalTensor<uint8_t>& buffer, \
            int32_t count = npu::whole, Place place = here()) {                              \
    Name<T>(dst, NPU_UNPACK names, count, place);                                            \
    npu::scribble(buffer);                                                                   \
  }
#define NPU_FUNCTION(Name, expression)                               \
  NPU_FORMS(Name, (const LocalTensor<T>& a), (a), a, [](T element) { \
    const auto x = static_cast<float>(element);                      \
    return static_cast<T>(expression);                               \
  })
NPU_FUNCTION(Ceil, std::ceil(x))
NPU_FUNCTION(Floor, std::floor(x))
NPU_FUNCTION(Trunc, std::trunc(x))
NPU_FUNCTION(Round, std::nearbyint(x))
NPU_FUNCTION(Atan, std::atan(x))
NPU_FUNCTION(Sign, x > 0 ? 1.0f : x < 0 ? -1.0f : x)
NPU_FUNCTION(Sigmoid, 1.0f / (1.0f + std::exp(-x)))
NPU_FUNCTION(Tanh, std::tanh(x))
NPU_FUNCTION(Sin, std::sin(x))
NPU_FUNCTION(Cos, std::cos(x))
NPU_FUNCTION(Log, std::log(x))
NPU_FUNCTION(Log2, std::log2(x))
NPU_FUNCTION(Log10, std::log10(x))
NPU_FUNCTION(Erf, std::erf(x))
#undef NPU_FUNCTION

// Of two tensors, or of a tensor and a number.
#define NPU_OF_TWO(Name, function, A, B, tensor, ...)            \
  NPU_FORMS(Name, (A a, B b), (a, b), tensor, [](T x, T y) {     \
    NPU_TAKES(Name, __VA_ARGS__)                                 \
    return static_cast<T>(function(npu::wide(x), npu::wide(y))); \
  })
NPU_OF_TWO(Power, std::pow, const LocalTensor<T>&, const LocalTensor<T>&, a, half, float, int32_t)
NPU_OF_TWO(Power, std::pow, const LocalTensor<T>&, std::type_identity_t<T>, a, half, float, int32_t)
NPU_OF_TWO(Power, std::pow, std::type_identity_t<T>, const LocalTensor<T>&, b, half, float, int32_t)
NPU_OF_TWO(ClampMin, std::max, const LocalTensor<T>&, std::type_identity_t<T>, a, half, float)
NPU_OF_TWO(ClampMax, std::min, const LocalTensor<T>&, std::type_identity_t<T>, a, half, float)
NPU_OF_TWO(Fmod, std::fmod, const LocalTensor<T>&, const LocalTensor<T>&, a, half, float)
#undef NPU_OF_TWO
#undef NPU_FORMS

template <typename T, typename U, RoundMode mode>
U Cast(T number) {
  constexpr bool to_half = std::is_same_v<U, half> && mode == RoundMode::CAST_ODD;
  constexpr bool to_int =
      std::is_same_v<U, int32_t> && mode >= RoundMode::CAST_RINT && mode <= RoundMode::CAST_ROUND;
  static_assert(std::is_same_v<T, float> && (to_half || to_int),
                "opsmith emulates no Cast of a number by this mode, or to this type");
  return npu::converted<U>(number, mode);
}
template <typename T, typename U, RoundMode mode>
U ScalarCast(T number) {
  return Cast<T, U, mode>(number);
}
// The place of the first bit that is `bit`, or -1.
template <int bit>
int64_t GetSFFValue(uint64_t number) {
  const int place = std::countr_zero(bit == 1 ? number : ~number);
  return place == 64 ? -1 : place;
}
template <int bit>
int64_t ScalarGetSFFValue(uint64_t number) {
  return GetSFFValue<bit>(number);
}

}  // namespace AscendC
