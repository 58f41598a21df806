// Random numbers that are a function of a seed, an offset and an index: Philox4x32-10.
//
//     #include <opsmith/philox.h>
//
//     const opsmith::Philox random(a.rng.data());   // in a CUDA kernel: pass a.rng.data() to it
//     ctx.parallel_for(0, a.x.numel(), 4096, [&](int64_t begin, int64_t end) {
//       for (int64_t i = begin; i < end; ++i) {
//         a.out[i] = random.bernoulli(i, 1 - a.p) ? a.x[i] * scale : T(0);
//       }
//     });
//
// Any index can be asked for, in any order and by any thread: there is no state, so the numbers do
// not depend on how work is split. opsmith.philox gives the same ones in Python: words, uniform
// numbers and decisions bit for bit, normal numbers up to rounding.
//
// Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011. The counter
// is laid out as in PyTorch's at::philox_engine: the offset plus the number of the block of four
// words in the lower half, the subsequence in the upper half.
#pragma once

#include <opsmith/math.h>

#include <cmath>
#include <cstdint>
#include <type_traits>

namespace opsmith {

class Philox {
 public:
#ifdef OPSMITH_EXACT
  using Single = exact::Float;
  using Double = exact::Double;
#else
  using Single = float;
  using Double = double;
#endif

  // Four words that belong together; computing one costs as much as all four.
  struct Block {
    uint32_t words[4];
    OPSMITH_HOST_DEVICE uint32_t operator[](int i) const { return words[i]; }
  };

  // `rng`: seed and offset, where the kernel runs. Streams of different `subsequence` do not
  // overlap: one for each purpose, or for each element that needs an unknown number of words.
  OPSMITH_HOST_DEVICE explicit Philox(const int64_t* rng, uint64_t subsequence = 0)
      : Philox(static_cast<uint64_t>(rng[0]), static_cast<uint64_t>(rng[1]), subsequence) {}
  OPSMITH_HOST_DEVICE Philox(uint64_t seed, uint64_t offset, uint64_t subsequence)
      : seed_(seed), offset_(offset), subsequence_(subsequence) {}

  // The words 4 * index to 4 * index + 3.
  OPSMITH_HOST_DEVICE Block block(uint64_t index) const {
    const uint64_t counter = offset_ + index;
    uint32_t a = low(counter), b = high(counter), c = low(subsequence_), d = high(subsequence_);
    uint32_t first = low(seed_), second = high(seed_);
    for (int round = 0; round < 10; ++round) {
      const uint64_t one = uint64_t{0xD2511F53} * a, other = uint64_t{0xCD9E8D57} * c;
      a = high(other) ^ b ^ first;
      b = low(other);
      c = high(one) ^ d ^ second;
      d = low(one);
      first += 0x9E3779B9;
      second += 0xBB67AE85;
    }
    return {{a, b, c, d}};
  }

  OPSMITH_HOST_DEVICE uint32_t word(uint64_t index) const {
    return block(index / 4)[static_cast<int>(index % 4)];
  }

  // Uniform in [0, 1): a multiple of 2^-24.
  OPSMITH_HOST_DEVICE Single uniform(uint64_t index) const { return unit(word(index)); }

  // True with the given probability.
  OPSMITH_HOST_DEVICE bool bernoulli(uint64_t index, Double probability) const {
    return word(index) < probability * 4294967296.0;
  }

  // Standard normal, by Box and Muller's transform: the numbers 2k and 2k + 1 are made of the words
  // 2k and 2k + 1. Computed in double for double, else in float.
  template <typename T = Single>
  OPSMITH_HOST_DEVICE T normal(uint64_t index) const {
    using Value = std::conditional_t<std::is_same_v<T, Double>, Double, Single>;
    const Block four = block(index / 4);
    const int pair = static_cast<int>(index % 4) & 2;
    const Value one = static_cast<Value>(unit(four[pair])) + Value(0x1p-24);
    const Value angle = Value(6.283185307179586) * static_cast<Value>(unit(four[pair + 1]));
    const Value radius = std::sqrt(Value(-2) * std::log(one));
    return static_cast<T>(radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle)));
  }

  OPSMITH_HOST_DEVICE static Single unit(uint32_t word) {
    return static_cast<Single>(word >> 8) * 0x1p-24f;
  }

 private:
  OPSMITH_HOST_DEVICE static uint32_t low(uint64_t value) { return static_cast<uint32_t>(value); }
  OPSMITH_HOST_DEVICE static uint32_t high(uint64_t value) {
    return static_cast<uint32_t>(value >> 32);
  }

  uint64_t seed_, offset_, subsequence_;
};

}  // namespace opsmith
