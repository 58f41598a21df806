// In place of the CUDA toolkit's header.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <emulated/cuda.h>
#include <emulated/fp8.h>

using __nv_fp8_storage_t = unsigned char;
using __nv_fp8x2_storage_t = unsigned short;
using __nv_fp8x4_storage_t = unsigned int;

enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

namespace emulated {

constexpr const Fp8Layout& fp8_layout(__nv_fp8_interpretation_t kind) {
  return kind == __NV_E4M3 ? e4m3 : e5m2;
}

}  // namespace emulated

inline __nv_fp8_storage_t __nv_cvt_double_to_fp8(double x, __nv_saturation_t saturation,
                                                 __nv_fp8_interpretation_t kind) {
  using namespace emulated;
  return to_fp8(x, fp8_layout(kind), saturation == __NV_SATFINITE);
}
inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t saturation,
                                                __nv_fp8_interpretation_t kind) {
  return __nv_cvt_double_to_fp8(x, saturation, kind);
}
inline __nv_fp8x2_storage_t __nv_cvt_double2_to_fp8x2(double2 x, __nv_saturation_t saturation,
                                                      __nv_fp8_interpretation_t kind) {
  const unsigned low = __nv_cvt_double_to_fp8(x.x, saturation, kind);
  const unsigned high = __nv_cvt_double_to_fp8(x.y, saturation, kind);
  return static_cast<__nv_fp8x2_storage_t>(high << 8 | low);
}
inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 x, __nv_saturation_t saturation,
                                                     __nv_fp8_interpretation_t kind) {
  return __nv_cvt_double2_to_fp8x2({x.x, x.y}, saturation, kind);
}

#ifndef OPSMITH_EXACT
inline __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(__half_raw x, __nv_saturation_t saturation,
                                                  __nv_fp8_interpretation_t kind) {
  return __nv_cvt_float_to_fp8(__half(x), saturation, kind);
}
inline __nv_fp8_storage_t __nv_cvt_bfloat16raw_to_fp8(__nv_bfloat16_raw x,
                                                      __nv_saturation_t saturation,
                                                      __nv_fp8_interpretation_t kind) {
  return __nv_cvt_float_to_fp8(__nv_bfloat16(x), saturation, kind);
}
inline __nv_fp8x2_storage_t __nv_cvt_halfraw2_to_fp8x2(__half2_raw x, __nv_saturation_t saturation,
                                                       __nv_fp8_interpretation_t kind) {
  return __nv_cvt_float2_to_fp8x2({x.x, x.y}, saturation, kind);
}
inline __nv_fp8x2_storage_t __nv_cvt_bfloat16raw2_to_fp8x2(__nv_bfloat162_raw x,
                                                           __nv_saturation_t saturation,
                                                           __nv_fp8_interpretation_t kind) {
  return __nv_cvt_float2_to_fp8x2({x.x, x.y}, saturation, kind);
}
inline __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t x, __nv_fp8_interpretation_t kind) {
  using namespace emulated;
  return {to_half(from_fp8(x, fp8_layout(kind)))};
}
inline __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t x,
                                              __nv_fp8_interpretation_t kind) {
  return {__nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(x & 0xff), kind),
          __nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(x >> 8), kind)};
}
#endif

// The classes clamp what is too large, as CUDA's do. They have no arithmetic.
#define OPSMITH_FP8(Name, Kind)                                                                  \
  struct __nv_fp8_##Name {                                                                       \
    __nv_fp8_storage_t __x;                                                                      \
    __nv_fp8_##Name() = default;                                                                 \
    template <typename N>                                                                        \
      requires std::is_convertible_v<N, float>                                                   \
    explicit __nv_fp8_##Name(N number)                                                           \
        : __x(__nv_cvt_double_to_fp8(static_cast<double>(static_cast<float>(number)),            \
                                     __NV_SATFINITE, Kind)) {}                                   \
    explicit __nv_fp8_##Name(double number)                                                      \
        : __x(__nv_cvt_double_to_fp8(number, __NV_SATFINITE, Kind)) {}                           \
    explicit operator float() const {                                                            \
      return emulated::from_fp8(__x, emulated::fp8_layout(Kind));                                \
    }                                                                                            \
    explicit operator double() const { return static_cast<float>(*this); }                       \
    explicit operator __half() const { return __half(static_cast<float>(*this)); }               \
    explicit operator __nv_bfloat16() const { return __nv_bfloat16(static_cast<float>(*this)); } \
    explicit operator bool() const { return (__x & 0x7f) != 0; }                                 \
  };                                                                                             \
  struct alignas(2) __nv_fp8x2_##Name {                                                          \
    __nv_fp8x2_storage_t __x;                                                                    \
    __nv_fp8x2_##Name() = default;                                                               \
    explicit __nv_fp8x2_##Name(float2 two)                                                       \
        : __x(__nv_cvt_float2_to_fp8x2(two, __NV_SATFINITE, Kind)) {}                            \
    explicit __nv_fp8x2_##Name(double2 two)                                                      \
        : __x(__nv_cvt_double2_to_fp8x2(two, __NV_SATFINITE, Kind)) {}                           \
    explicit __nv_fp8x2_##Name(__half2 two) : __nv_fp8x2_##Name(float2{two.x, two.y}) {}         \
    explicit __nv_fp8x2_##Name(__nv_bfloat162 two) : __nv_fp8x2_##Name(float2{two.x, two.y}) {}  \
    explicit operator float2() const {                                                           \
      const auto& layout = emulated::fp8_layout(Kind);                                           \
      return {emulated::from_fp8(static_cast<unsigned char>(__x & 0xff), layout),                \
              emulated::from_fp8(static_cast<unsigned char>(__x >> 8), layout)};                 \
    }                                                                                            \
    explicit operator __half2() const {                                                          \
      const float2 two(*this);                                                                   \
      return {two.x, two.y};                                                                     \
    }                                                                                            \
  };                                                                                             \
  struct alignas(4) __nv_fp8x4_##Name {                                                          \
    __nv_fp8x4_storage_t __x;                                                                    \
    __nv_fp8x4_##Name() = default;                                                               \
    explicit __nv_fp8x4_##Name(float4 four)                                                      \
        : __x(static_cast<unsigned>(                                                             \
                  __nv_cvt_float2_to_fp8x2({four.z, four.w}, __NV_SATFINITE, Kind))              \
                  << 16 |                                                                        \
              __nv_cvt_float2_to_fp8x2({four.x, four.y}, __NV_SATFINITE, Kind)) {}               \
    explicit operator float4() const {                                                           \
      const auto& layout = emulated::fp8_layout(Kind);                                           \
      const auto part = [&](int number) {                                                        \
        return emulated::from_fp8(static_cast<unsigned char>(__x >> 8 * number), layout);        \
      };                                                                                         \
      return {part(0), part(1), part(2), part(3)};                                               \
    }                                                                                            \
  };
OPSMITH_FP8(e4m3, __NV_E4M3)
OPSMITH_FP8(e5m2, __NV_E5M2)
#undef OPSMITH_FP8
