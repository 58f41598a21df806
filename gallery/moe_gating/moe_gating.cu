#include "moe_gating.h"

#include <opsmith/cuda.h>

#include <algorithm>
#include <cstdint>

#include "../packs.cuh"
#include "../segments.cuh"

namespace {

using gallery::kAllLanes, gallery::kThreads, gallery::kWarps, gallery::Sum;

// A warp takes a token. In each round its lanes look for the best expert behind the one before.
template <typename T>
__global__ void choose(const T* logits, int64_t tokens, int64_t experts, int64_t k, Sum<T>* powers,
                       T* weights, int32_t* chosen) {
  const int lane = threadIdx.x % 32;
  const int64_t token = (blockIdx.x * int64_t{blockDim.x} + threadIdx.x) / 32;
  if (token >= tokens) return;
  const T* own = logits + token * experts;
  Sum<T> largest = 0, before = 0, sum = 0;
  int32_t expert_before = -1;
  for (int64_t round = 0; round < k; ++round) {
    Sum<T> best = 0;
    int32_t expert = -1;
    for (int64_t e = lane; e < experts; e += 32) {
      const auto value = static_cast<Sum<T>>(own[e]);
      const bool is_behind = round == 0 || value < before || (value == before && e > expert_before);
      if (is_behind && (expert < 0 || value > best)) {
        best = value;
        expert = static_cast<int32_t>(e);
      }
    }
    for (int step = 16; step > 0; step /= 2) {
      const Sum<T> other = __shfl_xor_sync(kAllLanes, best, step);
      const int32_t its_expert = __shfl_xor_sync(kAllLanes, expert, step);
      const bool is_better =
          its_expert >= 0 && (expert < 0 || other > best || (other == best && its_expert < expert));
      if (is_better) {
        best = other;
        expert = its_expert;
      }
    }
    if (round == 0) largest = best;
    const Sum<T> power = opsmith::exp(best - largest);
    sum += power;
    before = best;
    expert_before = expert;
    if (lane == 0) {
      powers[token * k + round] = power;
      chosen[token * k + round] = expert < 0 ? 0 : expert;  // of NaN, which is not specified
    }
  }
  if (lane != 0) return;
  for (int64_t i = token * k; i < (token + 1) * k; ++i)
    weights[i] = static_cast<T>(powers[i] / sum);
}

static __global__ void write_order(gallery::Segments segments, int64_t experts, int32_t points,
                                   int32_t* offsets, int32_t* choices) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i <= experts) offsets[i] = segments.starts[i];
  if (i < points) choices[i] = segments.point(static_cast<int32_t>(i));
}

}  // namespace

template <typename T>
void moe_gating(const opsmith::Context& ctx, const llm::moe_gating_args<T>& a) {
  const int64_t points = a.T * a.k;
  if (points > 0) {
    opsmith::launch(ctx, choose<T>, opsmith::blocks_for(a.T, kWarps), kThreads, 0, a.logits.data(),
                    a.T, a.E, a.k, ctx.scratch<Sum<T>>(points).data(), a.out0.data(),
                    a.out1.data());
  }
  // Of equal keys, the sort keeps the order.
  gallery::Segmenter sorted(ctx, points, a.E);
  opsmith::launch(ctx, write_order, opsmith::blocks_for(std::max(points, a.E + 1), kThreads),
                  kThreads, 0, sorted(a.out1.data(), points), a.E, static_cast<int32_t>(points),
                  a.out2.data(), a.out3.data());
}
OPSMITH_KERNEL(llm, moe_gating, cuda, float, double, opsmith::half, opsmith::bfloat16)
