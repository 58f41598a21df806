// Logits are computed for a block of rows and of words at a time, and used while they are in the
// cache. The backward computes them again, once for the gradient of each operand.
#include "linear_cross_entropy.h"

#include <opsmith/kernel.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "../deform_conv2d/gemm.h"
#include "../vectors.h"
#include "linear_cross_entropy_backward.h"

namespace {

using gallery::Sum;

// Rows of one operand that a thread takes at a time, rows of the other beside them, and how many
// elements of both are multiplied before the next are packed.
template <typename S>
inline constexpr int64_t kOwn = 16 * gemm::Tile<S>::rows;
constexpr int64_t kOthers = 256, kDepth = 256;

// `count` items of `depth` elements, `width` items side by side, zeros behind the last.
template <typename S, typename T>
void pack(const T* from, int64_t item_stride, int64_t stride, int64_t count, int64_t depth,
          int64_t width, S* to) {
  for (int64_t first = 0; first < count; first += width) {
    const int64_t some = std::min(count - first, width);
    const T* items = from + first * item_stride;
    for (int64_t k = 0; k < depth; ++k, to += width) {
      for (int64_t i = 0; i < some; ++i)
        to[i] = static_cast<S>(items[i * item_stride + k * stride]);
      for (int64_t i = some; i < width; ++i) to[i] = S(0);
    }
  }
}

// The memory of one thread.
template <typename S>
struct Blocks {
  static constexpr int64_t left = kOwn<S> * kDepth, right = kDepth * kOthers,
                           result = kOwn<S> * kOthers;
  S *own, *others, *logits, *product;

  static constexpr int64_t size() { return left + right + 2 * result; }
  explicit Blocks(S* memory)
      : own(memory), others(own + left), logits(others + right), product(logits + result) {}
};

// c[r * kOthers + j] (+)= the sum over k < depth of a's item r times b's item j, both packed.
template <typename S>
void multiply(const S* a, int64_t rows, const S* b, int64_t columns, int64_t depth, bool adds,
              S* c) {
  using Tile = gemm::Tile<S>;
  for (int64_t j = 0; j < columns; j += Tile::width) {
    for (int64_t r = 0; r < rows; r += Tile::rows) {
      gemm::multiply<S, Tile::vectors, 1, Tile::rows>(depth, a + r * depth, b + j * depth,
                                                      c + r * kOthers + j, kOthers, adds);
    }
  }
}

// blocks.logits[r * kOthers + j] = own row r times other row j.
template <typename S, typename T>
void find_logits(const T* own, int64_t rows, const T* others, int64_t count, int64_t columns,
                 const Blocks<S>& blocks) {
  using Tile = gemm::Tile<S>;
  std::fill_n(blocks.logits, Blocks<S>::result, S(0));
  for (int64_t c = 0; c < columns; c += kDepth) {
    const int64_t depth = std::min(columns - c, kDepth);
    pack(own + c, columns, 1, rows, depth, Tile::rows, blocks.own);
    pack(others + c, columns, 1, count, depth, Tile::width, blocks.others);
    multiply(blocks.own, rows, blocks.others, count, depth, c > 0, blocks.logits);
  }
}

// Writes the gradients of the rows of `own`: sums over the rows of `others` of slope times row.
// `slope(own row, other row, logit)` is the derivative of the loss by the logit.
template <typename T, typename F>
void add_slopes(const opsmith::Context& ctx, const T* own, int64_t own_rows, const T* others,
                int64_t other_rows, int64_t columns, F slope, T* out) {
  using S = Sum<T>;
  using Tile = gemm::Tile<S>;
  const int64_t parts = (own_rows + kOwn<S> - 1) / kOwn<S>;
  ctx.parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
    const Blocks<S> blocks(ctx.scratch<S>(Blocks<S>::size()).data());
    const std::span<S> sums = ctx.scratch<S>(kOwn<S> * columns);
    for (int64_t part = begin; part < end; ++part) {
      const int64_t first = part * kOwn<S>, rows = std::min(own_rows - first, kOwn<S>);
      std::fill(sums.begin(), sums.end(), S(0));
      for (int64_t other = 0; other < other_rows; other += kOthers) {
        const int64_t count = std::min(other_rows - other, kOthers);
        find_logits(own + first * columns, rows, others + other * columns, count, columns, blocks);
        for (int64_t r = 0; r < rows; ++r) {
          S* logits = blocks.logits + r * kOthers;
          slope(first + r, other, count, logits);
        }
        pack<S>(blocks.logits, kOthers, 1, rows, count, Tile::rows, blocks.own);
        for (int64_t c = 0; c < columns; c += kOthers) {
          const int64_t width = std::min(columns - c, kOthers);
          pack(others + other * columns + c, 1, columns, width, count, Tile::width, blocks.others);
          multiply(blocks.own, rows, blocks.others, width, count, false, blocks.product);
          for (int64_t r = 0; r < rows; ++r) {
            S* sum = sums.data() + r * columns + c;
            const S* more = blocks.product + r * kOthers;
            for (int64_t j = 0; j < width; ++j) sum[j] += more[j];
          }
        }
      }
      gallery::narrow(sums.data(), rows * columns, out + first * columns);
    }
  });
}

// Of each token the largest logit, the sum of the exponentials of its logits less the largest, and
// the logit of its target. The logarithm of the sum is not added to the largest: beside a large one
// it would be rounded away.
template <typename S>
struct Totals {
  std::span<S> largest, sums, of_targets;

  Totals(const opsmith::Context& ctx, int64_t tokens)
      : largest(ctx.scratch<S>(tokens)),
        sums(ctx.scratch<S>(tokens)),
        of_targets(ctx.scratch<S>(tokens)) {}
};

template <typename T, typename Args>
Totals<Sum<T>> sum_up(const opsmith::Context& ctx, const Args& a) {
  using S = Sum<T>;
  const Totals<S> totals(ctx, a.N);
  const int64_t parts = (a.N + kOwn<S> - 1) / kOwn<S>;
  ctx.parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
    const Blocks<S> blocks(ctx.scratch<S>(Blocks<S>::size()).data());
    for (int64_t part = begin; part < end; ++part) {
      const int64_t first = part * kOwn<S>, rows = std::min(a.N - first, kOwn<S>);
      for (int64_t word = 0; word < a.V; word += kOthers) {
        const int64_t count = std::min(a.V - word, kOthers);
        find_logits(a.hidden.data() + first * a.C, rows, a.weight.data() + word * a.C, count, a.C,
                    blocks);
        for (int64_t r = 0; r < rows; ++r) {
          S* logits = blocks.logits + r * kOthers;
          const int64_t token = first + r, target = a.targets[token] - word;
          if (target >= 0 && target < count) totals.of_targets[token] = logits[target];
          S &largest = totals.largest[token], &total = totals.sums[token];
          S most = word == 0 ? logits[0] : largest;
          for (int64_t j = 0; j < count; ++j) most = most < logits[j] ? logits[j] : most;
          for (int64_t j = 0; j < count; ++j) logits[j] = gallery::exp_of(logits[j] - most);
          S sum = 0;
          for (int64_t j = 0; j < count; ++j) sum += logits[j];
          // The sum so far is of exponentials less the largest logit so far.
          total = word == 0 ? sum : sum + total * opsmith::exp(largest - most);
          largest = most;
        }
      }
    }
  });
  return totals;
}

}  // namespace

template <typename T>
void linear_cross_entropy(const opsmith::Context& ctx, const llm::linear_cross_entropy_args<T>& a) {
  const auto totals = sum_up<T>(ctx, a);
  for (int64_t n = 0; n < a.N; ++n) {
    a.out[n] =
        static_cast<T>(totals.largest[n] - totals.of_targets[n] + opsmith::log(totals.sums[n]));
  }
}
OPSMITH_KERNEL(llm, linear_cross_entropy, cpu, float, double, opsmith::half, opsmith::bfloat16)

template <typename T>
void linear_cross_entropy_backward(const opsmith::Context& ctx,
                                   const llm::linear_cross_entropy_backward_args<T>& a) {
  using S = Sum<T>;
  const auto totals = sum_up<T>(ctx, a);
  const auto slope = [&](int64_t token, int64_t word, S logit) {
    const S share = gallery::exp_of(logit - totals.largest[token]) / totals.sums[token];
    return static_cast<S>(a.grad[token]) * (share - (a.targets[token] == word ? S(1) : S(0)));
  };
  add_slopes(
      ctx, a.hidden.data(), a.N, a.weight.data(), a.V, a.C,
      [&](int64_t token, int64_t word, int64_t count, S* logits) {
        for (int64_t j = 0; j < count; ++j) logits[j] = slope(token, word + j, logits[j]);
      },
      a.out0.data());
  add_slopes(
      ctx, a.weight.data(), a.V, a.hidden.data(), a.N, a.C,
      [&](int64_t word, int64_t token, int64_t count, S* logits) {
        for (int64_t j = 0; j < count; ++j) logits[j] = slope(token + j, word, logits[j]);
      },
      a.out1.data());
}
OPSMITH_KERNEL(llm, linear_cross_entropy_backward, cpu, float, double, opsmith::half,
               opsmith::bfloat16)
