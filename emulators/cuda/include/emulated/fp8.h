// Numbers of 8 bits: conversions alone, since CUDA has no arithmetic for them.
#pragma once

#include <emulated/half.h>

#include <bit>
#include <cstdint>

namespace emulated {

// A layout by the "OCP 8-bit Floating Point Specification": E4M3 has no infinity, and one NaN.
struct Fp8Layout {
  int mantissa;            // bits
  int bias;                // of the exponent
  unsigned char greatest;  // finite
  unsigned char infinity;  // what becomes of larger numbers that are not clamped
  unsigned char not_a_number;
};
inline constexpr Fp8Layout e4m3{3, 7, 0x7e, 0x7f, 0x7f};
inline constexpr Fp8Layout e5m2{2, 15, 0x7b, 0x7c, 0x7e};

// Rounds to nearest, ties to even. `clamp` has what is too large become the greatest number.
inline unsigned char to_fp8(double value, const Fp8Layout& layout, bool clamp) {
  const auto bits = std::bit_cast<uint64_t>(value);
  const auto sign = static_cast<unsigned char>(bits >> 63 << 7);
  const double magnitude = std::bit_cast<double>(bits & ~(uint64_t{1} << 63));
  if (magnitude != magnitude) return sign | layout.not_a_number;
  const double smallest = std::bit_cast<double>(uint64_t(1024 - layout.bias) << 52);
  if (magnitude < smallest) {  // subnormal: the addition rounds
    const double unit =
        std::bit_cast<double>(uint64_t(1024 - layout.bias + 52 - layout.mantissa) << 52);
    const double sum = magnitude + unit;
    return sign |
           static_cast<unsigned char>(std::bit_cast<uint64_t>(sum) - std::bit_cast<uint64_t>(unit));
  }
  const int dropped = 52 - layout.mantissa;
  const uint64_t plain = bits & ~(uint64_t{1} << 63);
  const uint64_t odd = plain >> dropped & 1;
  const uint64_t rounded = (plain + (uint64_t{1} << (dropped - 1)) - 1 + odd) >> dropped;
  const uint64_t rebiased = rounded - (uint64_t(1023 - layout.bias) << layout.mantissa);
  if (rebiased <= layout.greatest) return sign | static_cast<unsigned char>(rebiased);
  return sign | (clamp ? layout.greatest : layout.infinity);
}

inline float from_fp8(unsigned char number, const Fp8Layout& layout) {
  const uint32_t sign = static_cast<uint32_t>(number & 0x80) << 24;
  const uint32_t magnitude = number & 0x7f;
  if (magnitude > layout.greatest) {
    const bool infinite = magnitude == layout.infinity && layout.infinity != layout.not_a_number;
    return std::bit_cast<float>(sign | (infinite ? 0x7f800000u : 0x7fc00000u));
  }
  const float unscaled = std::bit_cast<float>(magnitude << (23 - layout.mantissa));
  const float scale = std::bit_cast<float>(static_cast<uint32_t>(254 - layout.bias) << 23);
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(unscaled * scale));
}

}  // namespace emulated
