// Scores are computed for a block of rows and of keys at a time, and used while they are in the
// cache. The backward computes them again, once for the gradient of the queries and once for those
// of keys and values, so that each sum is one thread's.
#include "flash_attention.h"

#include <opsmith/kernel.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>

#include "blocks.h"
#include "flash_attention_backward.h"
#include "flash_attention_varlen.h"
#include "flash_attention_varlen_backward.h"

namespace {

using attention::add_weighted, attention::arguments_of, attention::Arguments, attention::Block,
    attention::find_scores, attention::kOthers, attention::kOwn, attention::pack_across,
    attention::pack_along, attention::padded, attention::Sequence, attention::Softmax, gallery::Sum;

template <typename T>
using Given = Arguments<T, Sum<T>>;

// How many keys of a tile that begins at `first` a row sees.
template <typename T>
int64_t seen(const Given<T>& a, const Block& block, int64_t r, int64_t first, int64_t count) {
  const int64_t all = block.sequence.visible((block.first + r) / a.group, a.causal);
  return std::clamp<int64_t>(all - first, 0, count);
}

template <typename T>
void attend(const opsmith::Context& ctx, const Given<T>& a, T* out, T* logsumexp) {
  using S = Sum<T>;
  constexpr int64_t width = gemm::Tile<S>::width;
  const int64_t queries = kOwn<S> * a.depth,
                others = kOthers * std::max(a.depth, padded<S>(a.width)),
                scores = kOwn<S> * kOthers, sums = kOwn<S> * padded<S>(a.width);
  const auto rows_of = [&](const Sequence& one) { return one.queries * a.group; };
  attention::for_each_block<S>(
      ctx, a, rows_of, queries + others + scores + sums, [&](const Block& block, S* memory) {
        const Sequence& sequence = block.sequence;
        S *own = memory, *other = own + queries, *score = other + others, *sum = score + scores;
        Softmax<S> softmax[kOwn<S>];
        const auto row = [&](int64_t r) { return a.row(sequence, block.head, block.first + r); };
        pack_across<S, T>([&](int64_t r) { return a.query + row(r) * a.depth; }, block.count,
                          a.depth, gemm::Tile<S>::rows, a.scale, own);
        std::fill_n(sum, sums, S(0));
        const int64_t last = seen(a, block, block.count - 1, 0, sequence.keys);
        for (int64_t first = 0; first < last; first += kOthers) {
          const int64_t count = std::min(last - first, kOthers);
          const auto place = [&](int64_t j) { return a.key_row(sequence, block.head, first + j); };
          pack_across<S, T>([&](int64_t j) { return a.key + place(j) * a.depth; }, count, a.depth,
                            width, S(1), other);
          find_scores(own, block.count, other, count, a.depth, score);
          for (int64_t r = 0; r < block.count; ++r) {
            S* weights = score + r * kOthers;
            const int64_t some = seen(a, block, r, first, count);
            std::fill(weights + some, weights + count, S(0));
            if (some == 0) continue;
            const S factor = softmax[r].add(weights, some, first == 0);
            if (first == 0) continue;
            S* own_sum = sum + r * padded<S>(a.width);
            for (int64_t c = 0; c < a.width; ++c) own_sum[c] *= factor;
          }
          pack_along<S, T>([&](int64_t j) { return a.value + place(j) * a.width; }, count, a.width,
                           other);
          add_weighted(score, block.count, other, count, a.width, sum);
        }
        for (int64_t r = 0; r < block.count; ++r) {
          S* own_sum = sum + r * padded<S>(a.width);
          if (seen(a, block, r, 0, 1) == 0) {
            logsumexp[row(r)] = static_cast<T>(-std::numeric_limits<S>::infinity());
          } else {
            for (int64_t c = 0; c < a.width; ++c) own_sum[c] /= softmax[r].total;
            logsumexp[row(r)] = static_cast<T>(softmax[r].largest + opsmith::log(softmax[r].total));
          }
          gallery::narrow(own_sum, a.width, out + row(r) * a.width);
        }
      });
}

// What the backward knows of each row, beside the arguments.
template <typename T>
struct Slopes {
  const T *grad, *grad_logsumexp, *out;
  // The mean of a row's slopes, its largest score, and 1 over the sum of the exponentials of scores
  // less the largest. The logarithm of that sum is not used: it is rounded to T.
  std::span<Sum<T>> means, largest, factors;
};

template <typename T>
void find_query_gradients(const opsmith::Context& ctx, const Given<T>& a, const Slopes<T>& slopes,
                          T* out) {
  using S = Sum<T>;
  constexpr int64_t width = gemm::Tile<S>::width;
  const int64_t queries = kOwn<S> * a.depth, grads = kOwn<S> * a.width,
                others = kOthers * std::max(padded<S>(a.depth), a.width),
                scores = kOwn<S> * kOthers, sums = kOwn<S> * padded<S>(a.depth);
  const auto rows_of = [&](const Sequence& one) { return one.queries * a.group; };
  attention::for_each_block<S>(
      ctx, a, rows_of, queries + grads + others + 2 * scores + sums,
      [&](const Block& block, S* memory) {
        const Sequence& sequence = block.sequence;
        S *own = memory, *own_grad = own + queries, *other = own_grad + grads,
          *score = other + others, *slope = score + scores, *sum = slope + scores;
        Softmax<S> softmax[kOwn<S>];
        const auto row = [&](int64_t r) { return a.row(sequence, block.head, block.first + r); };
        pack_across<S, T>([&](int64_t r) { return a.query + row(r) * a.depth; }, block.count,
                          a.depth, gemm::Tile<S>::rows, a.scale, own);
        pack_across<S, T>([&](int64_t r) { return slopes.grad + row(r) * a.width; }, block.count,
                          a.width, gemm::Tile<S>::rows, S(1), own_grad);
        for (int64_t r = 0; r < block.count; ++r) {
          const int64_t at = row(r) * a.width;
          slopes.means[row(r)] =
              gallery::sum_of_products<S>(a.width, slopes.grad + at, slopes.out + at) -
              static_cast<S>(slopes.grad_logsumexp[row(r)]);
        }
        std::fill_n(sum, sums, S(0));
        const int64_t last = seen(a, block, block.count - 1, 0, sequence.keys);
        for (int64_t first = 0; first < last; first += kOthers) {
          const int64_t count = std::min(last - first, kOthers);
          const auto place = [&](int64_t j) { return a.key_row(sequence, block.head, first + j); };
          const auto key = [&](int64_t j) { return a.key + place(j) * a.depth; };
          pack_across<S, T>(key, count, a.depth, width, S(1), other);
          find_scores(own, block.count, other, count, a.depth, score);
          pack_across<S, T>([&](int64_t j) { return a.value + place(j) * a.width; }, count, a.width,
                            width, S(1), other);
          find_scores(own_grad, block.count, other, count, a.width, slope);
          for (int64_t r = 0; r < block.count; ++r) {
            S *weights = score + r * kOthers, *own_slopes = slope + r * kOthers;
            const int64_t some = seen(a, block, r, first, count);
            std::fill(own_slopes + some, own_slopes + count, S(0));
            if (some == 0) continue;
            const S factor = softmax[r].add(weights, some, first == 0);
            const S mean = slopes.means[row(r)];
            for (int64_t j = 0; j < some; ++j) own_slopes[j] = weights[j] * (own_slopes[j] - mean);
            if (first == 0) continue;
            S* own_sum = sum + r * padded<S>(a.depth);
            for (int64_t c = 0; c < a.depth; ++c) own_sum[c] *= factor;
          }
          pack_along<S, T>(key, count, a.depth, other);
          add_weighted(slope, block.count, other, count, a.depth, sum);
        }
        for (int64_t r = 0; r < block.count; ++r) {
          S* own_sum = sum + r * padded<S>(a.depth);
          const bool sees = seen(a, block, r, 0, 1) > 0;
          const S factor = slopes.factors[row(r)] = sees ? 1 / softmax[r].total : S(0);
          slopes.largest[row(r)] = sees ? softmax[r].largest : S(0);
          for (int64_t c = 0; c < a.depth; ++c) own_sum[c] *= a.scale * factor;
          gallery::narrow(own_sum, a.depth, out + row(r) * a.depth);
        }
      });
}

template <typename T>
void find_key_gradients(const opsmith::Context& ctx, const Given<T>& a, const Slopes<T>& slopes,
                        T* of_key, T* of_value) {
  using S = Sum<T>;
  constexpr int64_t width = gemm::Tile<S>::width;
  const int64_t keys = kOwn<S> * a.depth, values = kOwn<S> * a.width,
                others = kOthers * std::max(padded<S>(a.depth), padded<S>(a.width)),
                scores = kOwn<S> * kOthers, key_sums = kOwn<S> * padded<S>(a.depth),
                value_sums = kOwn<S> * padded<S>(a.width);
  const auto keys_of = [](const Sequence& one) { return one.keys; };
  attention::for_each_block<S>(
      ctx, a, keys_of, keys + values + others + 2 * scores + key_sums + value_sums,
      [&](const Block& block, S* memory) {
        const Sequence& sequence = block.sequence;
        S *own = memory, *own_value = own + keys, *other = own_value + values,
          *score = other + others, *slope = score + scores, *key_sum = slope + scores,
          *value_sum = key_sum + key_sums;
        const auto place = [&](int64_t r) {
          return a.key_row(sequence, block.head, block.first + r);
        };
        pack_across<S, T>([&](int64_t r) { return a.key + place(r) * a.depth; }, block.count,
                          a.depth, gemm::Tile<S>::rows, S(1), own);
        pack_across<S, T>([&](int64_t r) { return a.value + place(r) * a.width; }, block.count,
                          a.width, gemm::Tile<S>::rows, S(1), own_value);
        std::fill_n(key_sum, key_sums + value_sums, S(0));
        const int64_t rows = sequence.queries * a.group;
        const auto first_row = [&](int64_t r) {
          return sequence.first_query(block.first + r, a.causal) * a.group;
        };
        for (int64_t first = first_row(0); first < rows; first += kOthers) {
          const int64_t count = std::min(rows - first, kOthers);
          const auto row = [&](int64_t j) { return a.row(sequence, block.head, first + j); };
          const auto query = [&](int64_t j) { return a.query + row(j) * a.depth; };
          const auto grad = [&](int64_t j) { return slopes.grad + row(j) * a.width; };
          S means[kOthers], factors[kOthers], largest[kOthers];
          for (int64_t j = 0; j < count; ++j) {
            means[j] = slopes.means[row(j)];
            factors[j] = slopes.factors[row(j)];
            largest[j] = slopes.largest[row(j)];
          }
          // Scaled as in `find_query_gradients`: scores with other bits would be beside the sums of
          // those there.
          pack_across<S, T>(query, count, a.depth, width, a.scale, other);
          find_scores(own, block.count, other, count, a.depth, score);
          pack_across<S, T>(grad, count, a.width, width, S(1), other);
          find_scores(own_value, block.count, other, count, a.width, slope);
          for (int64_t r = 0; r < block.count; ++r) {
            S *weights = score + r * kOthers, *own_slopes = slope + r * kOthers;
            const int64_t none = std::clamp<int64_t>(first_row(r) - first, 0, count);
            std::fill_n(weights, none, S(0));
            std::fill_n(own_slopes, none, S(0));
            for (int64_t j = none; j < count; ++j) {
              weights[j] = gallery::exp_of(weights[j] - largest[j]) * factors[j];
              own_slopes[j] = weights[j] * (own_slopes[j] - means[j]);
            }
          }
          pack_along<S, T>(grad, count, a.width, other);
          add_weighted(score, block.count, other, count, a.width, value_sum);
          pack_along<S, T>(query, count, a.depth, other);
          add_weighted(slope, block.count, other, count, a.depth, key_sum);
        }
        for (int64_t r = 0; r < block.count; ++r) {
          S* own_sum = key_sum + r * padded<S>(a.depth);
          for (int64_t c = 0; c < a.depth; ++c) own_sum[c] *= a.scale;
          gallery::narrow(own_sum, a.depth, of_key + place(r) * a.depth);
          gallery::narrow(value_sum + r * padded<S>(a.width), a.width,
                          of_value + place(r) * a.width);
        }
      });
}

template <typename T, typename Args>
void find_gradients(const opsmith::Context& ctx, const Args& args) {
  using S = Sum<T>;
  const auto a = arguments_of<T, S>(args);
  const int64_t rows = args.grad_out1.numel();
  const Slopes<T> slopes = {args.grad_out0.data(), args.grad_out1.data(), args.result_out0.data(),
                            ctx.scratch<S>(rows),  ctx.scratch<S>(rows),  ctx.scratch<S>(rows)};
  find_query_gradients<T>(ctx, a, slopes, args.out0.data());
  find_key_gradients<T>(ctx, a, slopes, args.out1.data(), args.out2.data());
}

}  // namespace

template <typename T>
void flash_attention(const opsmith::Context& ctx, const llm::flash_attention_args<T>& a) {
  attend<T>(ctx, arguments_of<T, Sum<T>>(a), a.out0.data(), a.out1.data());
}
OPSMITH_KERNEL(llm, flash_attention, cpu, float, double, opsmith::half, opsmith::bfloat16)

template <typename T>
void flash_attention_varlen(const opsmith::Context& ctx,
                            const llm::flash_attention_varlen_args<T>& a) {
  attend<T>(ctx, arguments_of<T, Sum<T>>(a), a.out0.data(), a.out1.data());
}
OPSMITH_KERNEL(llm, flash_attention_varlen, cpu, float, double, opsmith::half, opsmith::bfloat16)

template <typename T>
void flash_attention_backward(const opsmith::Context& ctx,
                              const llm::flash_attention_backward_args<T>& a) {
  find_gradients<T>(ctx, a);
}
OPSMITH_KERNEL(llm, flash_attention_backward, cpu, float, double, opsmith::half, opsmith::bfloat16)

template <typename T>
void flash_attention_varlen_backward(const opsmith::Context& ctx,
                                     const llm::flash_attention_varlen_backward_args<T>& a) {
  find_gradients<T>(ctx, a);
}
OPSMITH_KERNEL(llm, flash_attention_varlen_backward, cpu, float, double, opsmith::half,
               opsmith::bfloat16)
