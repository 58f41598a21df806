// A block takes some rows of one head of a sequence, and goes over the other side tile by tile.
// More columns than it adds up are further blocks', which compute the scores again. The backward
// has a kernel for the gradients of the queries and another for those of keys and values, so that
// each sum is one thread's.
#include "flash_attention.h"

#include <opsmith/cuda.h>

#include <algorithm>
#include <cstdint>

#include "flash_attention_backward.h"
#include "flash_attention_varlen.h"
#include "flash_attention_varlen_backward.h"
#include "tiles.cuh"

namespace {

using namespace attention;

template <typename T>
using Given = Arguments<T, Sum<T>>;

template <typename T>
__device__ int64_t seen(const Given<T>& a, const Part& part, int64_t r) {
  return part.sequence.visible((part.first + r) / a.group, a.causal);
}

template <typename T>
__global__ void attend(Given<T> a, T* out, T* logsumexp) {
  using S = Sum<T>;
  __shared__ Parts<S> parts;
  const Part part = find_part(a, true);
  if (part.count == 0) return;
  const int64_t head = part.head, column = blockIdx.y * int64_t{kColumns};
  const int lane = threadIdx.x % kWarp, own_first = static_cast<int>(threadIdx.x) / kWarp * kEach;
  const int own_rows = part.count - own_first;  // of the warp, if not more than it takes
  const auto row = [&](int64_t r) { return a.row(part.sequence, head, part.first + r); };
  S sums[kEach][kLaneColumns] = {}, scores[kEach];
  Softmax<S> softmax[kEach];
  const int64_t last = seen(a, part, part.count - 1);
  for (int64_t first = 0; first < last; first += kWarp) {
    const int count = last - first < kWarp ? static_cast<int>(last - first) : kWarp;
    const auto place = [&](int j) { return a.key_row(part.sequence, head, first + j); };
    find_scores<T>([&](int r) { return a.query + row(r) * a.depth; }, part.count,
                   [&](int j) { return a.key + place(j) * a.depth; }, count, a.depth, parts,
                   scores);
    for (int i = 0; i < kEach; ++i) {
      const int64_t r = own_first + i;
      const int64_t some = r < part.count ? seen(a, part, r) - first : 0;
      scores[i] *= a.scale;
      if (some <= 0) {
        scores[i] = 0;
        continue;
      }
      const S factor = softmax[i].add(scores[i], lane < some && lane < count, first == 0);
      for (S& sum : sums[i]) sum *= factor;
    }
    add_weighted<T>(
        scores, own_rows, [&](int j) { return a.value + place(j) * a.width; }, count, column,
        a.width, sums);
  }
  for (int i = 0; i < kEach; ++i) {
    const int64_t r = own_first + i;
    if (r >= part.count) continue;
    const bool sees = seen(a, part, r) > 0;
    write(sums[i], sees ? 1 / softmax[i].total : S(0), column, a.width, out + row(r) * a.width);
    if (lane == 0 && blockIdx.y == 0) {
      logsumexp[row(r)] =
          static_cast<T>(sees ? softmax[i].largest + opsmith::log(softmax[i].total) : S(-INFINITY));
    }
  }
}

// What the backward knows of each row, beside the arguments.
template <typename T>
struct Slopes {
  const T *grad, *grad_logsumexp, *out;
  // The mean of a row's slopes, its largest score, and 1 over the sum of the exponentials of scores
  // less the largest. The logarithm of that sum is not used: it is rounded to T.
  Sum<T>*means, *largest, *factors;
};

template <typename T>
__global__ void find_query_gradients(Given<T> a, Slopes<T> given, T* out) {
  using S = Sum<T>;
  __shared__ Parts<S> parts;
  const Part part = find_part(a, true);
  if (part.count == 0) return;
  const int64_t head = part.head, column = blockIdx.y * int64_t{kColumns};
  const int lane = threadIdx.x % kWarp, own_first = static_cast<int>(threadIdx.x) / kWarp * kEach;
  const int own_rows = part.count - own_first;  // of the warp, if not more than it takes
  const auto row = [&](int64_t r) { return a.row(part.sequence, head, part.first + r); };
  S sums[kEach][kLaneColumns] = {}, means[kEach] = {}, scores[kEach], slopes[kEach];
  Softmax<S> softmax[kEach];
  for (int i = 0; i < kEach; ++i) {
    const int64_t r = own_first + i;
    if (r >= part.count) continue;
    S own = 0;
    for (int64_t c = lane; c < a.width; c += kWarp) {
      own += static_cast<S>(given.grad[row(r) * a.width + c]) *
             static_cast<S>(given.out[row(r) * a.width + c]);
    }
    means[i] = warp_sum(own) - static_cast<S>(given.grad_logsumexp[row(r)]);
  }
  const int64_t last = seen(a, part, part.count - 1);
  for (int64_t first = 0; first < last; first += kWarp) {
    const int count = last - first < kWarp ? static_cast<int>(last - first) : kWarp;
    const auto place = [&](int j) { return a.key_row(part.sequence, head, first + j); };
    find_scores<T>([&](int r) { return a.query + row(r) * a.depth; }, part.count,
                   [&](int j) { return a.key + place(j) * a.depth; }, count, a.depth, parts,
                   scores);
    find_scores<T>([&](int r) { return given.grad + row(r) * a.width; }, part.count,
                   [&](int j) { return a.value + place(j) * a.width; }, count, a.width, parts,
                   slopes);
    for (int i = 0; i < kEach; ++i) {
      const int64_t r = own_first + i;
      const int64_t some = r < part.count ? seen(a, part, r) - first : 0;
      scores[i] *= a.scale;
      if (some <= 0) {
        slopes[i] = 0;
        continue;
      }
      const S factor = softmax[i].add(scores[i], lane < some && lane < count, first == 0);
      slopes[i] = scores[i] * (slopes[i] - means[i]);
      for (S& sum : sums[i]) sum *= factor;
    }
    add_weighted<T>(
        slopes, own_rows, [&](int j) { return a.key + place(j) * a.depth; }, count, column, a.depth,
        sums);
  }
  for (int i = 0; i < kEach; ++i) {
    const int64_t r = own_first + i;
    if (r >= part.count) continue;
    const S factor = seen(a, part, r) > 0 ? 1 / softmax[i].total : S(0);
    write(sums[i], a.scale * factor, column, a.depth, out + row(r) * a.depth);
    if (lane == 0 && blockIdx.y == 0) {
      given.means[row(r)] = means[i];
      given.largest[row(r)] = softmax[i].largest;
      given.factors[row(r)] = factor;
    }
  }
}

template <typename T>
__global__ void find_key_gradients(Given<T> a, Slopes<T> given, T* of_key, T* of_value) {
  using S = Sum<T>;
  __shared__ Parts<S> parts;
  const Part part = find_part(a, false);
  if (part.count == 0) return;
  const int64_t head = part.head, column = blockIdx.y * int64_t{kColumns};
  const int lane = threadIdx.x % kWarp, own_first = static_cast<int>(threadIdx.x) / kWarp * kEach;
  const int own_rows = part.count - own_first;  // of the warp, if not more than it takes
  const auto place = [&](int64_t r) { return a.key_row(part.sequence, head, part.first + r); };
  const auto first_row = [&](int64_t r) {
    return part.sequence.first_query(part.first + r, a.causal) * a.group;
  };
  S key_sums[kEach][kLaneColumns] = {}, value_sums[kEach][kLaneColumns] = {}, scores[kEach],
    slopes[kEach];
  const int64_t rows = part.sequence.queries * a.group;
  for (int64_t first = first_row(0); first < rows; first += kWarp) {
    const int count = rows - first < kWarp ? static_cast<int>(rows - first) : kWarp;
    const auto row = [&](int j) { return a.row(part.sequence, head, first + j); };
    find_scores<T>([&](int r) { return a.key + place(r) * a.depth; }, part.count,
                   [&](int j) { return a.query + row(j) * a.depth; }, count, a.depth, parts,
                   scores);
    find_scores<T>([&](int r) { return a.value + place(r) * a.width; }, part.count,
                   [&](int j) { return given.grad + row(j) * a.width; }, count, a.width, parts,
                   slopes);
    for (int i = 0; i < kEach; ++i) {
      const int64_t r = own_first + i;
      const bool sees = r < part.count && lane < count && first + lane >= first_row(r);
      S weight = 0, slope = 0;
      if (sees) {
        const int64_t own = row(lane);
        weight = opsmith::exp(a.scale * scores[i] - given.largest[own]) * given.factors[own];
        slope = weight * (slopes[i] - given.means[own]);
      }
      scores[i] = weight;
      slopes[i] = slope;
    }
    add_weighted<T>(
        slopes, own_rows, [&](int j) { return a.query + row(j) * a.depth; }, count, column, a.depth,
        key_sums);
    add_weighted<T>(
        scores, own_rows, [&](int j) { return given.grad + row(j) * a.width; }, count, column,
        a.width, value_sums);
  }
  for (int i = 0; i < kEach; ++i) {
    const int64_t r = own_first + i;
    if (r >= part.count) continue;
    write(key_sums[i], a.scale, column, a.depth, of_key + place(r) * a.depth);
    write(value_sums[i], S(1), column, a.width, of_value + place(r) * a.width);
  }
}

// The grid of a kernel that adds up rows of so many columns.
template <typename T>
dim3 grid_of(const Given<T>& a, bool of_queries, int64_t columns) {
  return dim3(blocks_of(a, of_queries),
              static_cast<unsigned>(std::max<int64_t>(1, (columns + kColumns - 1) / kColumns)));
}

template <typename T, typename Args>
void launch_forward(const opsmith::Context& ctx, const Args& args) {
  const auto a = arguments_of<T, Sum<T>>(args);
  if (args.out1.numel() == 0) return;
  opsmith::launch(ctx, attend<T>, grid_of(a, true, a.width), kThreads, 0, a, args.out0.data(),
                  args.out1.data());
}

template <typename T, typename Args>
void launch_backward(const opsmith::Context& ctx, const Args& args) {
  const auto a = arguments_of<T, Sum<T>>(args);
  const int64_t rows = args.grad_out1.numel();
  const Slopes<T> slopes = {args.grad_out0.data(),
                            args.grad_out1.data(),
                            args.result_out0.data(),
                            ctx.scratch<Sum<T>>(rows).data(),
                            ctx.scratch<Sum<T>>(rows).data(),
                            ctx.scratch<Sum<T>>(rows).data()};
  if (rows > 0) {
    opsmith::launch(ctx, find_query_gradients<T>, grid_of(a, true, a.depth), kThreads, 0, a, slopes,
                    args.out0.data());
  }
  if (args.out1.numel() + args.out2.numel() > 0) {
    opsmith::launch(ctx, find_key_gradients<T>, grid_of(a, false, std::max(a.depth, a.width)),
                    kThreads, 0, a, slopes, args.out1.data(), args.out2.data());
  }
}

}  // namespace

template <typename T>
void flash_attention(const opsmith::Context& ctx, const llm::flash_attention_args<T>& a) {
  launch_forward<T>(ctx, a);
}
OPSMITH_KERNEL(llm, flash_attention, cuda, float, double, opsmith::half, opsmith::bfloat16)

template <typename T>
void flash_attention_varlen(const opsmith::Context& ctx,
                            const llm::flash_attention_varlen_args<T>& a) {
  launch_forward<T>(ctx, a);
}
OPSMITH_KERNEL(llm, flash_attention_varlen, cuda, float, double, opsmith::half, opsmith::bfloat16)

template <typename T>
void flash_attention_backward(const opsmith::Context& ctx,
                              const llm::flash_attention_backward_args<T>& a) {
  launch_backward<T>(ctx, a);
}
OPSMITH_KERNEL(llm, flash_attention_backward, cuda, float, double, opsmith::half, opsmith::bfloat16)

template <typename T>
void flash_attention_varlen_backward(const opsmith::Context& ctx,
                                     const llm::flash_attention_varlen_backward_args<T>& a) {
  launch_backward<T>(ctx, a);
}
OPSMITH_KERNEL(llm, flash_attention_varlen_backward, cuda, float, double, opsmith::half,
               opsmith::bfloat16)
