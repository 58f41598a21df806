// Scores of a block's rows with a tile of other rows in CUDA: each lane of a warp has one of these,
// each warp a few of the block's rows.
#pragma once

#include <opsmith/cuda.h>

#include <cstdint>

#include "../packs.cuh"
#include "sequences.h"

namespace attention {

using gallery::Sum;

inline constexpr int kWarp = 32, kWarps = 2, kThreads = kWarp * kWarps;
inline constexpr int kEach = 8;               // rows of a warp
inline constexpr int kRows = kEach * kWarps;  // of a block
inline constexpr int kDepth = 32;             // elements of each row that lie in shared memory
inline constexpr int kLaneColumns = 4;        // columns of the result that a lane adds up
inline constexpr int kColumns = kWarp * kLaneColumns;
inline constexpr unsigned kAll = 0xffffffffu;

template <typename S>
__device__ S warp_sum(S own) {
  for (int step = kWarp / 2; step > 0; step /= 2) own += __shfl_xor_sync(kAll, own, step);
  return own;
}
template <typename S>
__device__ S warp_largest(S own) {
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const S other = __shfl_xor_sync(kAll, own, step);
    own = own < other ? other : own;
  }
  return own;
}

// A softmax of the scores of one row, a tile at a time: each lane has one of them.
template <typename S>
struct Softmax {
  S largest = 0, total = 0;

  // Makes a weight of the lane's score, and returns the factor of the sums of the tiles before. At
  // least the first lane's key is seen.
  __device__ S add(S& score, bool sees, bool is_first) {
    const S first_score = __shfl_sync(kAll, score, 0);
    S most = shift_of(warp_largest(sees ? score : first_score));
    if (!is_first && most < largest) most = largest;
    score = sees ? opsmith::exp(score - most) : S(0);
    const S factor = is_first ? S(0) : opsmith::exp(largest - most);
    total = total * factor + warp_sum(score);
    largest = most;
    return factor;
  }
};

// The part of the rows that a block takes: a sequence, and its first row.
struct Part {
  Sequence sequence;
  int64_t first, count;  // count: 0 if there is nothing to do
};

// Finds the part of a block. `each` is how many rows a place of the sequence has: the group for
// queries, 1 for keys.
template <typename Args>
__device__ Part find_part(const Args& a, int64_t block, bool of_queries) {
  for (int64_t s = 0; s < a.sequences; ++s) {
    const Sequence one = a.sequence(s);
    const int64_t rows = of_queries ? one.queries * a.group : one.keys;
    const int64_t blocks = (rows + kRows - 1) / kRows;
    if (block < blocks) {
      const int64_t first = block * kRows;
      return {one, first, rows - first < kRows ? rows - first : kRows};
    }
    block -= blocks;
  }
  return {{}, 0, 0};
}

// Not more blocks than this have a part: each sequence may have one that is not full.
template <typename Args>
int64_t parts_at_most(const Args& a, bool of_queries) {
  const int64_t rows = of_queries ? a.queries * a.group : a.keys;
  if (a.query_offsets == nullptr) return a.sequences * ((rows + kRows - 1) / kRows);
  return rows == 0 ? 0 : rows / kRows + a.sequences;
}

// scores[i] = the product of the warp's own row i and the lane's other row. `own(r)` and `other(j)`
// point at rows of `columns` elements, or are null. All threads of the block take part.
template <typename T, typename FOwn, typename FOther>
__device__ void find_scores(FOwn own, FOther other, int64_t columns, Sum<T>* scores) {
  using S = Sum<T>;
  __shared__ S own_part[kRows][kDepth];
  __shared__ S other_part[kWarp][kDepth + 1];  // so that lanes read from different banks
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  for (int i = 0; i < kEach; ++i) scores[i] = S(0);
  for (int64_t first = 0; first < columns; first += kDepth) {
    __syncthreads();  // the part before is read
    for (int item = threadIdx.x; item < kRows * kDepth; item += kThreads) {
      const int64_t c = first + item % kDepth;
      const T* row = own(item / kDepth);
      own_part[item / kDepth][item % kDepth] =
          row == nullptr || c >= columns ? S(0) : static_cast<S>(row[c]);
    }
    for (int item = threadIdx.x; item < kWarp * kDepth; item += kThreads) {
      const int64_t c = first + item % kDepth;
      const T* row = other(item / kDepth);
      other_part[item / kDepth][item % kDepth] =
          row == nullptr || c >= columns ? S(0) : static_cast<S>(row[c]);
    }
    __syncthreads();
    const int some = columns - first < kDepth ? static_cast<int>(columns - first) : kDepth;
    for (int c = 0; c < some; ++c) {
      const S factor = other_part[lane][c];
      for (int i = 0; i < kEach; ++i) scores[i] += own_part[warp * kEach + i][c] * factor;
    }
  }
}

// sums[i][k] += the sum over the `count` other rows of the lanes' weights[i] times an element: of
// columns `first` + lane, + 32 and so on.
template <typename T, typename F>
__device__ void add_weighted(const Sum<T>* weights, F other, int count, int64_t first,
                             int64_t columns, Sum<T> (*sums)[kLaneColumns]) {
  const int lane = threadIdx.x % kWarp;
  for (int j = 0; j < count; ++j) {
    const T* row = other(j);
    Sum<T> shares[kEach];
    for (int i = 0; i < kEach; ++i) shares[i] = __shfl_sync(kAll, weights[i], j);
    for (int k = 0; k < kLaneColumns; ++k) {
      const int64_t c = first + k * kWarp + lane;
      if (c >= columns) break;
      const auto item = static_cast<Sum<T>>(row[c]);
      for (int i = 0; i < kEach; ++i) sums[i][k] += shares[i] * item;
    }
  }
}

// Writes a row of the sums, times a factor.
template <typename T>
__device__ void write(const Sum<T>* sums, Sum<T> factor, int64_t first, int64_t columns, T* to) {
  for (int k = 0; k < kLaneColumns; ++k) {
    const int64_t c = first + k * kWarp + static_cast<int>(threadIdx.x % kWarp);
    if (c < columns) to[c] = static_cast<T>(sums[k] * factor);
  }
}

}  // namespace attention
