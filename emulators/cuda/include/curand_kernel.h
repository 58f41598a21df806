// Random numbers of cuRAND's Philox generator, in device code: the same words and uniform numbers
// as on a GPU, and normal ones up to rounding.
#pragma once

#include <emulated/cuda.h>

struct curandStatePhilox4_32_10 {
  unsigned long long seed = 0, subsequence = 0, word = 0;
  float normal = 0;
  bool has_normal = false;
};
using curandStatePhilox4_32_10_t = curandStatePhilox4_32_10;

inline void curand_init(unsigned long long seed, unsigned long long subsequence,
                        unsigned long long offset, curandStatePhilox4_32_10* state) {
  *state = {seed, subsequence, offset};
}
inline void skipahead(unsigned long long count, curandStatePhilox4_32_10* state) {
  state->word += count;
}

namespace emulated {
// A word of Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2,
// 3", SC 2011. The counter is the number of the block of four words, then the subsequence.
inline unsigned philox_word(uint64_t seed, uint64_t subsequence, uint64_t index) {
  const uint64_t block = index / 4;
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  uint32_t counter[4] = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                         static_cast<uint32_t>(subsequence),
                         static_cast<uint32_t>(subsequence >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t even = uint64_t{0xD2511F53} * counter[0];
    const uint64_t odd = uint64_t{0xCD9E8D57} * counter[2];
    counter[0] = static_cast<uint32_t>(odd >> 32) ^ counter[1] ^ key[0];
    counter[1] = static_cast<uint32_t>(odd);
    counter[2] = static_cast<uint32_t>(even >> 32) ^ counter[3] ^ key[1];
    counter[3] = static_cast<uint32_t>(even);
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter[index % 4];
}
}  // namespace emulated

inline unsigned curand(curandStatePhilox4_32_10* state) {
  return emulated::philox_word(state->seed, state->subsequence, state->word++);
}
inline uint4 curand4(curandStatePhilox4_32_10* state) {
  const unsigned x = curand(state), y = curand(state), z = curand(state), w = curand(state);
  return {x, y, z, w};
}

namespace emulated {
// Uniform in (0, 1].
inline float uniform_of(unsigned word) { return word * 0x1p-32f + 0x1p-33f; }
inline float2 normals_of(unsigned first, unsigned second) {
  const float angle = second * (0x1p-32f * 6.2831855f) + 0x1p-33f * 6.2831855f;
  const float length = sqrtf(-2.0f * logf(uniform_of(first)));
  return {sinf(angle) * length, cosf(angle) * length};
}
}  // namespace emulated

inline float curand_uniform(curandStatePhilox4_32_10* state) {
  return emulated::uniform_of(curand(state));
}
inline float4 curand_uniform4(curandStatePhilox4_32_10* state) {
  using emulated::uniform_of;
  const uint4 words = curand4(state);
  return {uniform_of(words.x), uniform_of(words.y), uniform_of(words.z), uniform_of(words.w)};
}
inline float2 curand_normal2(curandStatePhilox4_32_10* state) {
  const unsigned first = curand(state), second = curand(state);
  return emulated::normals_of(first, second);
}
inline float curand_normal(curandStatePhilox4_32_10* state) {
  if (state->has_normal) {
    state->has_normal = false;
    return state->normal;
  }
  const float2 both = curand_normal2(state);
  state->normal = both.y;
  state->has_normal = true;
  return both.x;
}
inline float4 curand_normal4(curandStatePhilox4_32_10* state) {
  const float2 one = curand_normal2(state), other = curand_normal2(state);
  return {one.x, one.y, other.x, other.y};
}
