// How a call computes with floating-point numbers, whatever its host has chosen for itself.
#pragma once

#include <cstdint>

namespace opsmith::detail {

// The setting of this thread's processor: how it rounds, whether it keeps subnormal numbers (XLA's
// threads flush them to zero), which exceptions stop it. `numbers` are the bits that change a
// result, 0 in what a program begins with; `flushing` are those that lose subnormal numbers.
struct FloatingPoint {
#if defined(__x86_64__)
  using Bits = uint32_t;
  static constexpr Bits flushing = 0x8040;            // of MXCSR: FTZ, DAZ
  static constexpr Bits numbers = flushing | 0x6000;  // and the rounding mode
  static Bits read() {
    Bits bits;
    __asm__ volatile("stmxcsr %0" : "=m"(bits) : : "memory");
    return bits;
  }
  static void write(Bits bits) { __asm__ volatile("ldmxcsr %0" : : "m"(bits) : "memory"); }
#elif defined(__aarch64__)
  using Bits = uint64_t;
  static constexpr Bits flushing = 0x01080001;            // of FPCR: FZ, FZ16, FIZ
  static constexpr Bits numbers = flushing | 0x06C00006;  // and AHP, DN, RMode, NEP, AH
  static Bits read() {
    Bits bits;
    __asm__ volatile("mrs %0, fpcr" : "=r"(bits) : : "memory");
    return bits;
  }
  static void write(Bits bits) { __asm__ volatile("msr fpcr, %0" : : "r"(bits) : "memory"); }
#else
  using Bits = uint32_t;
  static constexpr Bits flushing = 0, numbers = 0;
  static Bits read() { return 0; }
  static void write(Bits) {}
#endif
};

// Sets those bits of this thread for the length of a block, then puts back what was there.
class ComputeAs {
 public:
  explicit ComputeAs(FloatingPoint::Bits wanted = 0) : before_(FloatingPoint::read()) {
    const FloatingPoint::Bits differing = (before_ ^ wanted) & FloatingPoint::numbers;
    changed_ = differing != 0;
    if (changed_) [[unlikely]]
      FloatingPoint::write(before_ ^ differing);
  }
  ComputeAs(const ComputeAs&) = delete;
  ComputeAs& operator=(const ComputeAs&) = delete;
  ~ComputeAs() {
    if (changed_) [[unlikely]]
      FloatingPoint::write(before_);
  }

 private:
  const FloatingPoint::Bits before_;
  bool changed_;
};

}  // namespace opsmith::detail
