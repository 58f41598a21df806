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

// The rows that a block takes: of which sequence and head, the first, and how many.
struct Part {
  Sequence sequence;
  int64_t head, first;
  int count;  // 0 if there is nothing to do
};

// How many parts begin before those of a sequence, at most: as many as the rows before it fill, and
// for each sequence one that is not full. Its own parts are not more than the difference to the
// next. So a block finds its part by bisection, and nobody counts the rows of all sequences.
template <typename Args>
OPSMITH_HOST_DEVICE int64_t parts_before(const Args& a, int64_t s, bool of_queries) {
  if (a.query_offsets == nullptr) {
    return s * (((of_queries ? a.queries * a.group : a.keys) + kRows - 1) / kRows);
  }
  return (of_queries ? a.query_offsets[s] * a.group : a.key_offsets[s]) / kRows + s;
}

// Finds the part of the block, whose number is that of the part times the heads, and its head.
template <typename Args>
__device__ Part find_part(const Args& a, bool of_queries) {
  const int64_t block = blockIdx.x / a.heads;
  int64_t low = 0, high = a.sequences;  // the sequence is in [low, high)
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (parts_before(a, middle, of_queries) <= block) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const Sequence one = a.sequence(low);
  const int64_t rows = of_queries ? one.queries * a.group : one.keys;
  const int64_t first = (block - parts_before(a, low, of_queries)) * kRows;
  if (first >= rows) return {one, blockIdx.x % a.heads, first, 0};
  const int count = rows - first < kRows ? static_cast<int>(rows - first) : kRows;
  return {one, blockIdx.x % a.heads, first, count};
}

// How many blocks find a part, at most. The offsets are on the device: the last is the size.
template <typename Args>
unsigned blocks_of(const Args& a, bool of_queries) {
  const int64_t rows = of_queries ? a.queries * a.group : a.keys;
  const int64_t parts = a.query_offsets == nullptr ? parts_before(a, a.sequences, of_queries)
                                                   : rows / kRows + a.sequences;
  return opsmith::blocks_for(parts * a.heads, 1);
}

// The shared memory of a block: a part of each of its rows, and of the other rows beside them.
template <typename S>
struct Parts {
  S own[kRows][kDepth], other[kWarp][kDepth + 1];  // + 1: lanes read from different banks
};

// scores[i] = the product of the warp's own row i and the lane's other row; 0 beyond the last of
// either. `own(r)` and `other(j)` point at rows of `columns` elements. All threads of the block
// take part.
template <typename T, typename FOwn, typename FOther>
__device__ void find_scores(FOwn own, int own_count, FOther other, int other_count, int64_t columns,
                            Parts<Sum<T>>& parts, Sum<T>* scores) {
  using S = Sum<T>;
  const int lane = threadIdx.x % kWarp, own_first = static_cast<int>(threadIdx.x) / kWarp * kEach;
  for (int i = 0; i < kEach; ++i) scores[i] = S(0);
  for (int64_t first = 0; first < columns; first += kDepth) {
    const int some = columns - first < kDepth ? static_cast<int>(columns - first) : kDepth;
    __syncthreads();  // the part before is read
    for (int item = threadIdx.x; item < own_count * kDepth; item += kThreads) {
      const int r = item / kDepth, c = item % kDepth;
      if (c < some) parts.own[r][c] = static_cast<S>(own(r)[first + c]);
    }
    for (int item = threadIdx.x; item < other_count * kDepth; item += kThreads) {
      const int j = item / kDepth, c = item % kDepth;
      if (c < some) parts.other[j][c] = static_cast<S>(other(j)[first + c]);
    }
    __syncthreads();
    if (lane >= other_count) continue;
    for (int c = 0; c < some; ++c) {
      const S factor = parts.other[lane][c];
      for (int i = 0; i < kEach; ++i) {
        if (own_first + i < own_count) scores[i] += parts.own[own_first + i][c] * factor;
      }
    }
  }
}

// sums[i][k] += the sum over the `count` other rows of the lanes' weights[i] times an element: of
// columns `first` + lane, + 32 and so on. The warp has `rows` rows i.
template <typename T, typename F>
__device__ void add_weighted(const Sum<T>* weights, int rows, F other, int count, int64_t first,
                             int64_t columns, Sum<T> (*sums)[kLaneColumns]) {
  const int lane = threadIdx.x % kWarp;
  for (int j = 0; j < count; ++j) {
    const T* row = other(j);
    Sum<T> shares[kEach];
    for (int i = 0; i < kEach; ++i) {
      shares[i] = i < rows ? __shfl_sync(kAll, weights[i], j) : Sum<T>(0);
    }
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
