// Steps of the recurrence side by side in CUDA: what steps make together of a state is again a
// factor and something that is added, so that a block's threads find it by a scan.
#pragma once

#include <opsmith/cuda.h>

#include <cstdint>

#include "../packs.cuh"

namespace scan {

using gallery::Sum;

inline constexpr int kWarp = 32, kWarps = 2, kThreads = kWarp * kWarps;
inline constexpr int kItems = 4;                  // steps of a thread
inline constexpr int kChunk = kThreads * kItems;  // steps of a block
inline constexpr unsigned kAll = 0xffffffffu;

// Beyond it the softplus of a number is the number, and its slope 1, in double too.
inline constexpr int kThreshold = 40;

// What some steps make of a state: rate * state + added.
template <typename S>
struct Steps {
  S rate, added;

  // A state of zero stays what it is, also where the rates' product is beyond the range of S.
  __device__ S of(S state) const { return state == S(0) ? added : rate * state + added; }
  __device__ Steps after(Steps before) const { return {before.rate * rate, of(before.added)}; }
};

// What the steps of the threads before this one make together; of those behind it, of which the
// last comes first, with kBackwards. `sums` is shared, and has an element for each warp.
template <bool kBackwards, typename S>
__device__ Steps<S> steps_before(Steps<S> own, Steps<S>* sums) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int place = kBackwards ? kWarp - 1 - lane : lane;
  const auto from = [lane](const Steps<S>& steps, int distance) {
    const int other = (kBackwards ? lane + distance : lane - distance) & (kWarp - 1);
    return Steps<S>{__shfl_sync(kAll, steps.rate, other), __shfl_sync(kAll, steps.added, other)};
  };
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const Steps<S> before = from(own, distance);
    if (place >= distance) own = own.after(before);
  }
  Steps<S> result = from(own, 1);
  __syncthreads();  // the sums of the call before are read
  if (place == kWarp - 1) sums[warp] = own;
  __syncthreads();
  if (place == 0) result = {S(1), S(0)};
  for (int step = 0; step < kWarps; ++step) {
    // From the nearest warp on to the farthest.
    const int other = kBackwards ? warp + 1 + step : warp - 1 - step;
    if (other >= 0 && other < kWarps) result = result.after(sums[other]);
  }
  return result;
}

template <typename S>
__device__ S silu_of(S x) {
  return x / (1 + opsmith::exp(-x));
}

// log(1 + exp(x)), and its slope.
template <typename S>
__device__ S softplus_of(S x) {
  const S e = opsmith::exp(x < S(0) ? x : -x);  // 0 … 1
#ifdef OPSMITH_EXACT
  const S log = opsmith::log(1 + e);
#else
  const S log = log1p(e);
#endif
  const S sum = (x < S(0) ? S(0) : x) + log;
  return x > S(kThreshold) ? x : sum;
}
template <typename S>
__device__ S softplus_slope_of(S x) {
  const S e = opsmith::exp(x > S(kThreshold) ? S(kThreshold) : x);
  return x > S(kThreshold) ? S(1) : e / (1 + e);
}

}  // namespace scan
