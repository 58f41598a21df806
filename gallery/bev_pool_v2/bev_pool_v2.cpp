#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>

#include <opsmith/kernel.h>

#include "bev_pool_v2.h"
#include "points.h"

namespace bev {
namespace {

// row[0..kCount * kLanes) (+)= sum over the points [p, end) of depth * feat, from channel c on.
template <int kCount, typename T>
void add_channels(const bev_pool_v2_args<T>& a, int64_t p, int64_t end, int64_t c, bool fresh,
                  Sum<T>* row) {
  const T* feat = a.feat.data() + c;
  Lanes<T> sum[kCount] = {};
  if (!fresh) std::memcpy(sum, row, sizeof sum);
  for (; p < end; ++p) {
    const Sum<T> depth = static_cast<Sum<T>>(a.depth[a.ranks_depth[p]]);
    const T* pixel = feat + a.ranks_feat[p] * a.C;
    for (int k = 0; k < kCount; ++k) sum[k] += depth * load(pixel + k * kLanes<T>);
  }
  std::memcpy(row, sum, sizeof sum);
}

// row[0..C) (+)= sum over the points [p, end) of depth * feat.
template <typename T>
void add_points(const bev_pool_v2_args<T>& a, int64_t p, int64_t end, bool fresh, Sum<T>* row) {
  int64_t c = 0;
  constexpr int kStep = kLanes<T>;
  for (; c + 8 * kStep <= a.C; c += 8 * kStep) add_channels<8>(a, p, end, c, fresh, row + c);
  if (c + 4 * kStep <= a.C) add_channels<4>(a, p, end, c, fresh, row + c), c += 4 * kStep;
  for (; c + kStep <= a.C; c += kStep) add_channels<1>(a, p, end, c, fresh, row + c);
  for (; c < a.C; ++c) {
    Sum<T> sum = fresh ? Sum<T>(0) : row[c];
    for (int64_t q = p; q < end; ++q)
      sum += static_cast<Sum<T>>(a.depth[a.ranks_depth[q]]) *
             static_cast<Sum<T>>(a.feat[a.ranks_feat[q] * a.C + c]);
    row[c] = sum;
  }
}

// Whether cells only grow along the points and intervals neither overlap nor go back.
template <typename T>
bool is_ordered(const opsmith::Context& ctx, const bev_pool_v2_args<T>& a) {
  std::atomic<bool> ordered{true};
  ctx.parallel_for(1, std::max(a.P, a.I), 1 << 15, [&](int64_t begin, int64_t end) {
    bool falls = false;
    const int32_t *ranks = a.ranks_bev.data(), *starts = a.interval_starts.data(),
                  *lengths = a.interval_lengths.data();
    for (int64_t p = begin; p < std::min(end, a.P); ++p) falls |= ranks[p] < ranks[p - 1];
    for (int64_t i = begin; i < std::min(end, a.I); ++i)
      falls |= starts[i] < starts[i - 1] + lengths[i - 1];
    if (falls) ordered.store(false, std::memory_order_relaxed);
  });
  return ordered.load();
}

// Writes the cells [cell, last), when is_ordered: each is met once, its points one after another.
template <typename T>
void pool_ordered(const bev_pool_v2_args<T>& a, int64_t cell, int64_t last, Sum<T>* scratch) {
  const int32_t* ranks = a.ranks_bev.data();
  const int64_t first_point = std::lower_bound(ranks, ranks + a.P, cell) - ranks;
  const int64_t last_point = std::lower_bound(ranks + first_point, ranks + a.P, last) - ranks;
  const int32_t* starts = a.interval_starts.data();
  int64_t i = std::upper_bound(starts, starts + a.I, first_point) - starts;
  i = std::max<int64_t>(i - 1, 0);  // the interval before may reach beyond first_point

  const auto row = [&](int64_t c) {
    if constexpr (std::is_same_v<T, Sum<T>>) {
      return a.out.data() + c * a.C;
    } else {
      return scratch;
    }
  };
  const auto finish = [&](int64_t c) {
    if constexpr (!std::is_same_v<T, Sum<T>>)
      std::copy(scratch, scratch + a.C, a.out.data() + c * a.C);
  };

  int64_t open = -1;  // the cell whose sum is not complete yet
  for (; i < a.I && starts[i] < last_point; ++i) {
    int64_t p = std::max<int64_t>(starts[i], first_point);
    const int64_t end = std::min<int64_t>(starts[i] + a.interval_lengths[i], last_point);
    while (p < end) {
      const int64_t here = ranks[p];
      int64_t run = p + 1;
      while (run < end && ranks[run] == here) ++run;
      if (here != open) {
        if (open >= 0) finish(open);
        std::fill(a.out.data() + cell * a.C, a.out.data() + here * a.C, T(0));
        cell = here + 1;
      }
      add_points(a, p, run, here != open, row(here));
      open = here;
      p = run;
    }
  }
  if (open >= 0) finish(open);
  std::fill(a.out.data() + cell * a.C, a.out.data() + last * a.C, T(0));
}

}  // namespace
}  // namespace bev

template <typename T>
void bev_pool_v2(const opsmith::Context& ctx, const bev::bev_pool_v2_args<T>& a) {
  using namespace bev;
  const int64_t cells = a.B * a.bev_size[0] * a.bev_size[1] * a.bev_size[2];
  const int64_t parts = ctx.num_threads();
  std::span<Sum<T>> scratch = ctx.scratch<Sum<T>>(parts * a.C);
  if (is_ordered(ctx, a)) {
    const int32_t* ranks = a.ranks_bev.data();
    // A part's work is its points and its cells; both only grow along the points.
    const auto bound = [&](int64_t part) -> int64_t {
      if (part == 0) return 0;
      if (part == parts) return cells;
      const int64_t target = (a.P + cells) / parts * part;
      int64_t low = 0, high = a.P;
      while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (middle + ranks[middle] < target)
          low = middle + 1;
        else
          high = middle;
      }
      return low < a.P ? ranks[low] : cells;
    };
    ctx.parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part)
        pool_ordered(a, bound(part), bound(part + 1), scratch.data() + part * a.C);
    });
    return;
  }
  sum_rows(ctx, a.out.data(), cells, a.C, [&](int64_t first, int64_t last, Sum<T>* sums) {
    for_each_point(a, [&](int64_t p) {
      const int64_t cell = a.ranks_bev[p];
      if (cell < first || cell >= last) return;
      add_scaled(sums + (cell - first) * a.C, static_cast<Sum<T>>(a.depth[a.ranks_depth[p]]),
                 a.feat.data() + a.ranks_feat[p] * a.C, a.C);
    });
  });
}
OPSMITH_KERNEL(bev, bev_pool_v2, cpu, float, double, opsmith::half, opsmith::bfloat16)
