// Blocks of rows and the products of two of them, on the CPU.
#pragma once

#include <opsmith/kernel.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "../gemm.h"
#include "../vectors.h"
#include "sequences.h"

namespace attention {

using gallery::Sum;

// Rows that a thread takes at a time, and rows of the other side beside them.
template <typename S>
inline constexpr int64_t kOwn = 8 * gemm::Tile<S>::rows;
inline constexpr int64_t kOthers = 128;

template <typename S>
constexpr int64_t padded(int64_t columns) {
  return gemm::round_up(columns, gemm::Tile<S>::width);
}

// Puts `count` rows of `columns` elements, times a factor, into panels of `width` rows, in which
// the rows' elements stand side by side, with zeros behind the last row.
template <typename S, typename T, typename F>
void pack_across(F row, int64_t count, int64_t columns, int64_t width, S factor, S* to) {
  gallery::Tile<S> items;
  for (int64_t first = 0; first < count; first += width, to += width * columns) {
    for (int64_t i = 0; i < width; ++i) {
      for (int64_t c = 0; c < columns; c += gallery::kTile) {
        const int64_t some = std::min(columns - c, gallery::kTile);
        if (first + i < count) {
          gallery::widen<T>(row(first + i) + c, some, items.items);
        } else {
          std::fill_n(items.items, some, S(0));
        }
        S* own = to + c * width + i;
        for (int64_t k = 0; k < some; ++k) own[k * width] = items[k] * factor;
      }
    }
  }
}

// Puts the rows into panels of as many columns as a tile is wide, with zeros behind the last.
template <typename S, typename T, typename F>
void pack_along(F row, int64_t count, int64_t columns, S* to) {
  constexpr int64_t width = gemm::Tile<S>::width;
  for (int64_t c = 0; c < columns; c += width) {
    const int64_t some = std::min(columns - c, width);
    for (int64_t k = 0; k < count; ++k, to += width) {
      gallery::widen<T>(row(k) + c, some, to);
      std::fill(to + some, to + width, S(0));
    }
  }
}

// scores[r * kOthers + j] = own row r times other row j, both packed across.
template <typename S>
void find_scores(const S* own, int64_t rows, const S* others, int64_t count, int64_t columns,
                 S* scores) {
  using Tile = gemm::Tile<S>;
  for (int64_t j = 0; j < count; j += Tile::width) {
    for (int64_t r = 0; r < rows; r += Tile::rows) {
      gemm::multiply<S, Tile::vectors, 1, Tile::rows>(columns, own + r * columns,
                                                      others + j * columns,
                                                      scores + r * kOthers + j, kOthers, false);
    }
  }
}

// sums[r * padded(columns) + c] += the sum over j < count of weights[r * kOthers + j] times element
// c of other row j, packed along.
template <typename S>
void add_weighted(const S* weights, int64_t rows, const S* others, int64_t count, int64_t columns,
                  S* sums) {
  using Tile = gemm::Tile<S>;
  for (int64_t c = 0; c < columns; c += Tile::width) {
    for (int64_t r = 0; r < rows; r += Tile::rows) {
      gemm::multiply<S, Tile::vectors, kOthers, 1>(count, weights + r * kOthers, others + c * count,
                                                   sums + r * padded<S>(columns) + c,
                                                   padded<S>(columns), true);
    }
  }
}

// values[i] = exp(values[i] - less) for i < count; returns their sum.
template <typename S>
S exponentials(S* values, int64_t count, S less) {
  for (int64_t i = 0; i < count; ++i) values[i] = gallery::exp_of(values[i] - less);
  return gallery::sum_of_products<S>(count, values);
}

// The largest of values[0..count), count > 0.
template <typename S>
S largest_of(const S* values, int64_t count) {
  constexpr int kLanes = gallery::kLanes<S>;  // comparisons that wait for none beside them
  S largest = values[0];
  int64_t i = 0;
  if (count >= kLanes) {
    S lanes[kLanes];
    std::copy_n(values, kLanes, lanes);
    for (i = kLanes; i + kLanes <= count; i += kLanes) {
      for (int l = 0; l < kLanes; ++l) {
        lanes[l] = lanes[l] < values[i + l] ? values[i + l] : lanes[l];
      }
    }
    for (const S lane : lanes) largest = largest < lane ? lane : largest;
  }
  for (; i < count; ++i) largest = largest < values[i] ? values[i] : largest;
  return largest;
}

// A softmax of scores that come a part at a time.
template <typename S>
struct Softmax {
  S largest, total;

  // Makes weights of `count` > 0 scores, and returns the factor of the sums of those before.
  S add(S* scores, int64_t count, bool is_first) {
    S most = shift_of(largest_of(scores, count));
    if (!is_first && most < largest) most = largest;
    const S sum = exponentials(scores, count, most);
    const S factor = is_first ? S(0) : opsmith::exp(largest - most);
    total = is_first ? sum : total * factor + sum;
    largest = most;
    return factor;
  }
};

// A block of rows, or of keys, of one head of one sequence.
struct Block {
  Sequence sequence;
  int64_t head, first, count;
};

// Calls f(block, memory) for each block on all threads. `count_of(sequence)` says how many rows a
// head has there, `size` how many elements of memory a thread needs.
template <typename S, typename Args, typename Count, typename F>
void for_each_block(const opsmith::Context& ctx, const Args& a, Count count_of, int64_t size, F f) {
  std::vector<Block> blocks;
  for (int64_t s = 0; s < a.sequences; ++s) {
    const Sequence sequence = a.sequence(s);
    const int64_t count = count_of(sequence);
    for (int64_t head = 0; head < a.heads; ++head) {
      for (int64_t first = 0; first < count; first += kOwn<S>) {
        blocks.push_back({sequence, head, first, std::min(count - first, kOwn<S>)});
      }
    }
  }
  const auto total = static_cast<int64_t>(blocks.size());
  ctx.parallel_for(0, total, 1, [&](int64_t begin, int64_t end) {
    S* memory = ctx.scratch<S>(size).data();
    for (int64_t i = begin; i < end; ++i) {
      // From both ends: later blocks of a causal mask have more to do.
      f(blocks[i % 2 == 0 ? i / 2 : total - 1 - i / 2], memory);
    }
  });
}

}  // namespace attention
