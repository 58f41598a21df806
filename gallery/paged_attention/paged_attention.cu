#include "paged_attention.h"

#include <opsmith/cuda.h>

#include <algorithm>
#include <cstdint>

#include "../packs.cuh"

namespace {

using gallery::Sum;

constexpr int kWarp = 32, kWarps = 4;
constexpr int kLaneColumns = 4;  // that a lane adds up
constexpr int kColumns = kWarp * kLaneColumns;
constexpr unsigned kAll = 0xffffffffu;

// A warp takes one head of one sequence, token after token; its lanes divide the elements. Warps of
// a block have neighbouring heads, which read the same keys. More columns than a warp adds up are
// another block's, which computes the scores again.
template <typename T>
__global__ void attend(const T* query, const T* keys, const T* values, const int32_t* pages,
                       const int32_t* lengths, Sum<T> scale, int64_t items, int64_t heads,
                       int64_t group, int64_t depth, int64_t slots, int64_t pages_each, T* out) {
  using S = Sum<T>;
  const int64_t item = blockIdx.x * int64_t{kWarps} + threadIdx.x / kWarp;
  if (item >= items) return;
  const int lane = threadIdx.x % kWarp;
  const int64_t sequence = item / (heads * group), head = item % (heads * group) / group;
  const int64_t first = blockIdx.y * int64_t{kColumns} + lane, length = lengths[sequence];
  const T* own = query + item * depth;
  S sums[kLaneColumns] = {}, total = 0, largest = 0;
  for (int64_t t = 0; t < length; ++t) {
    const int64_t page = pages[sequence * pages_each + t / slots];
    const int64_t at = ((page * slots + t % slots) * heads + head) * depth;
    S score = 0;
    for (int64_t d = lane; d < depth; d += kWarp) {
      score += static_cast<S>(own[d]) * static_cast<S>(keys[at + d]);
    }
    for (int step = kWarp / 2; step > 0; step /= 2) score += __shfl_xor_sync(kAll, score, step);
    score *= scale;
    // The sums so far are of exponentials less the largest score so far.
    const S most = t == 0 || !(score <= largest) ? score : largest;  // NaN too
    const S weight = opsmith::exp(score - most);
    const S factor = t == 0 ? S(0) : opsmith::exp(largest - most);
    total = total * factor + weight;
    largest = most;
    for (int k = 0; k < kLaneColumns; ++k) {
      const int64_t d = first + k * kWarp;
      if (d < depth) sums[k] = sums[k] * factor + weight * static_cast<S>(values[at + d]);
    }
  }
  for (int k = 0; k < kLaneColumns; ++k) {
    const int64_t d = first + k * kWarp;
    if (d < depth) out[item * depth + d] = static_cast<T>(sums[k] / total);
  }
}

}  // namespace

template <typename T>
void paged_attention(const opsmith::Context& ctx, const llm::paged_attention_args<T>& a) {
  const int64_t items = a.S * a.K * a.G;
  if (items * a.D == 0) return;
  const dim3 grid(opsmith::blocks_for(items, kWarps),
                  static_cast<unsigned>((a.D + kColumns - 1) / kColumns));
  opsmith::launch(ctx, attend<T>, grid, kWarp * kWarps, 0, a.query.data(), a.keys.data(),
                  a.values.data(), a.pages.data(), a.lengths.data(), static_cast<Sum<T>>(a.scale),
                  items, a.K, a.G, a.D, a.L, a.M, a.out.data());
}
OPSMITH_KERNEL(llm, paged_attention, cuda, float, double, opsmith::half, opsmith::bfloat16)
