// Logits are computed for a block of rows and of words at a time, and used while they are in the
// cache. The backward computes them again, once for the gradient of each operand.
#include "linear_cross_entropy.h"

#include <opsmith/kernel.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "../products.h"
#include "../vectors.h"
#include "linear_cross_entropy_backward.h"

namespace {

using gallery::Matrix, gallery::Sum;

// Rows of one operand that a thread takes at a time, and rows of the other beside them.
template <typename S>
inline constexpr int64_t kOwn = gallery::kBlockRows<S>;
constexpr int64_t kOthers = gallery::kBlockColumns;

// The memory of one thread.
template <typename S>
struct Blocks {
  static constexpr int64_t size = kOwn<S> * kOthers;
  S *logits, *sums;
  gallery::BlockProduct<S> product;

  explicit Blocks(const opsmith::Context& ctx)
      : logits(ctx.scratch<S>(size).data()), sums(ctx.scratch<S>(size).data()), product(ctx) {}
};

// blocks.logits[r * kOthers + j] = own row r times other row j.
template <typename S, typename T>
void find_logits(const T* own, int64_t rows, const T* others, int64_t count, int64_t columns,
                 const Blocks<S>& blocks) {
  blocks.product(Matrix<T>{own, columns, 1}, Matrix<T>{others, 1, columns}, rows, count, columns,
                 blocks.logits);
}

// Writes the gradients of the rows of `own`: sums over the rows of `others` of slope times row.
// `slope(own row, other row, logit)` is the derivative of the loss by the logit.
template <typename T, typename F>
void add_slopes(const opsmith::Context& ctx, const T* own, int64_t own_rows, const T* others,
                int64_t other_rows, int64_t columns, F slope, T* out) {
  using S = Sum<T>;
  const int64_t parts = (own_rows + kOwn<S> - 1) / kOwn<S>;
  ctx.parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
    const Blocks<S> blocks(ctx);
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
        for (int64_t c = 0; c < columns; c += kOthers) {
          const int64_t width = std::min(columns - c, kOthers);
          blocks.product(Matrix<S>{blocks.logits, kOthers, 1},
                         Matrix<T>{others + other * columns + c, columns, 1}, rows, width, count,
                         blocks.sums);
          for (int64_t r = 0; r < rows; ++r) {
            S* sum = sums.data() + r * columns + c;
            const S* more = blocks.sums + r * kOthers;
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
    const Blocks<S> blocks(ctx);
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
