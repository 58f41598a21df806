#include "segment_reduce.h"

#include <opsmith/kernel.h>

#include <algorithm>
#include <cstdint>

#include "../vectors.h"
#include "segment_reduce_backward.h"

namespace {

using gallery::kTile, gallery::narrow, gallery::Sum, gallery::Tile, gallery::widen;

// Calls f(segment, begin, end) for each segment of rows, on all threads, whose shares are of equal
// work: the rows and the segments before it grow with each segment.
template <typename F>
void for_each_segment(const opsmith::Context& ctx, const int64_t* offsets, int64_t segments,
                      int64_t columns, F f) {
  if (segments == 0 || columns == 0) return;
  const int64_t work = offsets[segments] + segments;
  const auto first_of = [=](int64_t part) {  // the first segment with that much work before it
    int64_t low = 0, high = segments;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (offsets[middle] + middle < part) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  };
  ctx.parallel_for(0, work, (1 << 13) / columns + 1, [&](int64_t begin, int64_t end) {
    const int64_t last = first_of(end);
    for (int64_t segment = first_of(begin); segment < last; ++segment) {
      f(segment, offsets[segment], offsets[segment + 1]);
    }
  });
}

// Calls f(column, count) for parts of a row.
template <typename F>
void for_each_tile(int64_t columns, F f) {
  for (int64_t column = 0; column < columns; column += kTile) {
    f(column, std::min(columns - column, kTile));
  }
}

}  // namespace

template <typename T>
void segment_reduce(const opsmith::Context& ctx, const graphs::segment_reduce_args<T>& a) {
  using S = Sum<T>;
  using Reduce = graphs::segment_reduce_reduce;
  for_each_segment(ctx, a.offsets.data(), a.S, a.C,
                   [&](int64_t segment, int64_t begin, int64_t end) {
                     for_each_tile(a.C, [&](int64_t column, int64_t count) {
                       Tile<S> sums, values;
                       std::fill_n(sums.items, count, S(0));
                       if (a.reduce == Reduce::max) {
                         for (int64_t row = begin; row < end; ++row) {
                           widen(a.x.data() + row * a.C + column, count, values.items);
                           if (row == begin) std::copy_n(values.items, count, sums.items);
                           for (int64_t i = 0; i < count; ++i) {
                             sums[i] = sums[i] < values[i] ? values[i] : sums[i];
                           }
                         }
                       } else {
                         for (int64_t row = begin; row < end; ++row) {
                           gallery::transform<S>(
                               count, sums.items, [](auto sum, auto value) { return sum + value; },
                               sums.items, a.x.data() + row * a.C + column);
                         }
                       }
                       if (a.reduce == Reduce::mean && end > begin) {
                         const auto rows = static_cast<S>(end - begin);
                         for (int64_t i = 0; i < count; ++i) sums[i] /= rows;
                       }
                       narrow(sums.items, count, a.out.data() + segment * a.C + column);
                     });
                   });
}
OPSMITH_KERNEL(graphs, segment_reduce, cpu, float, double, opsmith::half, opsmith::bfloat16)

template <typename T>
void segment_reduce_backward(const opsmith::Context& ctx,
                             const graphs::segment_reduce_backward_args<T>& a) {
  using S = Sum<T>;
  using Reduce = graphs::segment_reduce_backward_reduce;
  for_each_segment(
      ctx, a.offsets.data(), a.S, a.C, [&](int64_t segment, int64_t begin, int64_t end) {
        for_each_tile(a.C, [&](int64_t column, int64_t count) {
          Tile<S> grads, largest, values, shares;
          const int64_t at = segment * a.C + column;
          widen(a.grad.data() + at, count, grads.items);
          if (a.reduce != Reduce::max) {
            const auto rows = static_cast<S>(a.reduce == Reduce::mean ? end - begin : 1);
            for (int64_t i = 0; i < count; ++i) grads[i] /= rows;
            for (int64_t row = begin; row < end; ++row) {
              narrow(grads.items, count, a.out.data() + row * a.C + column);
            }
            return;
          }
          widen(a.result.data() + at, count, largest.items);
          std::fill_n(shares.items, count, S(0));
          for (int64_t row = begin; row < end; ++row) {
            widen(a.x.data() + row * a.C + column, count, values.items);
            for (int64_t i = 0; i < count; ++i) {
              shares[i] += values[i] == largest[i] ? S(1) : S(0);
            }
          }
          for (int64_t i = 0; i < count; ++i) {
            grads[i] /= shares[i] < S(1) ? S(1) : shares[i];
          }
          for (int64_t row = begin; row < end; ++row) {
            const int64_t own = row * a.C + column;
            widen(a.x.data() + own, count, values.items);
            for (int64_t i = 0; i < count; ++i) {
              values[i] = values[i] == largest[i] ? grads[i] : S(0);
            }
            narrow(values.items, count, a.out.data() + own);
          }
        });
      });
}
OPSMITH_KERNEL(graphs, segment_reduce_backward, cpu, float, double, opsmith::half,
               opsmith::bfloat16)
