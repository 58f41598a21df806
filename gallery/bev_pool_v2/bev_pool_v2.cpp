#include "bev_pool_v2.h"

#include <opsmith/kernel.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "points.h"

namespace bev {
namespace {

// row[0..kCount * kLanes) = the sum over the points [p, end) of depth * feat, for the channels from
// c on; += unless `fresh`.
template <int kCount, typename T>
void add_channels(const bev_pool_v2_args<T>& a, int64_t p, int64_t end, int64_t c, bool fresh,
                  Sum<T>* row) {
  const T* feat = a.feat.data() + c;
  Lanes<T> sum[kCount] = {};
  if (!fresh) {
    for (int k = 0; k < kCount; ++k) sum[k] = Lanes<T>::load(row + k * kLanes<T>);
  }
  for (; p < end; ++p) {
    const Sum<T> depth = static_cast<Sum<T>>(a.depth[a.ranks_depth[p]]);
    const T* pixel = feat + a.ranks_feat[p] * a.C;
    for (int k = 0; k < kCount; ++k) sum[k] += depth * load(pixel + k * kLanes<T>);
  }
  for (int k = 0; k < kCount; ++k) sum[k].store(row + k * kLanes<T>);
}

// row[0..C) = the sum over the points [p, end) of depth * feat; += unless `fresh`.
template <typename T>
void add_points(const bev_pool_v2_args<T>& a, int64_t p, int64_t end, bool fresh, Sum<T>* row) {
  int64_t c = 0;
  constexpr int kStep = kLanes<T>;
  for (; c + 8 * kStep <= a.C; c += 8 * kStep) add_channels<8>(a, p, end, c, fresh, row + c);
  for (; c + 4 * kStep <= a.C; c += 4 * kStep) add_channels<4>(a, p, end, c, fresh, row + c);
  for (; c + kStep <= a.C; c += kStep) add_channels<1>(a, p, end, c, fresh, row + c);
  for (; c < a.C; ++c) {
    Sum<T> sum = fresh ? Sum<T>(0) : row[c];
    for (int64_t q = p; q < end; ++q) {
      sum += static_cast<Sum<T>>(a.depth[a.ranks_depth[q]]) *
             static_cast<Sum<T>>(a.feat[a.ranks_feat[q] * a.C + c]);
    }
    row[c] = sum;
  }
}

// Whether cells only grow along the points, and intervals neither overlap nor go back. One thread
// is done sooner than it could wake the others.
template <typename T>
bool is_ordered(const bev_pool_v2_args<T>& a) {
  const int32_t *ranks = a.ranks_bev.data(), *starts = a.interval_starts.data(),
                *lengths = a.interval_lengths.data();
  int falls = 0;
  for (int64_t p = 1; p < a.P; ++p) falls |= ranks[p] < ranks[p - 1];
  for (int64_t i = 1; i < a.I; ++i) falls |= starts[i] < starts[i - 1] + lengths[i - 1];
  return falls == 0;
}

// The first cell of a part of the output, when is_ordered. A part's work is its points and its
// cells, and both only grow along the points.
template <typename T>
int64_t first_cell(const bev_pool_v2_args<T>& a, int64_t cells, int64_t part, int64_t parts) {
  if (part == 0) return 0;
  if (part == parts) return cells;
  const int64_t target = (a.P + cells) / parts * part;
  int64_t low = 0, high = a.P;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (middle + a.ranks_bev[middle] < target) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < a.P ? a.ranks_bev[low] : cells;
}

// Writes the cells [cell, last), when is_ordered: each is met once, its points one after another.
// Half types are added up in `scratch`, a row.
template <typename T>
void pool_ordered(const bev_pool_v2_args<T>& a, int64_t cell, int64_t last, Sum<T>* scratch) {
  const int32_t *ranks = a.ranks_bev.data(), *starts = a.interval_starts.data();
  T* out = a.out.data();
  const int64_t first_point = std::lower_bound(ranks, ranks + a.P, cell) - ranks;
  const int64_t last_point = std::lower_bound(ranks + first_point, ranks + a.P, last) - ranks;
  // The interval that begins before first_point may reach beyond it.
  const int64_t after = std::upper_bound(starts, starts + a.I, first_point) - starts;

  int64_t open = -1;  // the cell whose sum is not complete yet
  const auto sums = [&]() -> Sum<T>* {
    if constexpr (kInPlace<T>) {
      return out + open * a.C;
    } else {
      return scratch;
    }
  };
  const auto finish = [&] {
    if (!kInPlace<T> && open >= 0) std::copy_n(scratch, a.C, out + open * a.C);
  };
  for (int64_t i = std::max<int64_t>(after - 1, 0); i < a.I && starts[i] < last_point; ++i) {
    int64_t p = std::max<int64_t>(starts[i], first_point);
    const int64_t end = std::min<int64_t>(starts[i] + a.interval_lengths[i], last_point);
    while (p < end) {
      int64_t run = p + 1;
      while (run < end && ranks[run] == ranks[p]) ++run;
      const bool fresh = ranks[p] != open;
      if (fresh) {
        finish();
        open = ranks[p];
        std::fill(out + cell * a.C, out + open * a.C, T(0));
        cell = open + 1;
      }
      add_points(a, p, run, fresh, sums());
      p = run;
    }
  }
  finish();
  std::fill(out + cell * a.C, out + last * a.C, T(0));
}

}  // namespace
}  // namespace bev

template <typename T>
void bev_pool_v2(const opsmith::Context& ctx, const bev::bev_pool_v2_args<T>& a) {
  using bev::Sum;
  const int64_t cells = a.B * a.bev_size[0] * a.bev_size[1] * a.bev_size[2];
  if (bev::is_ordered(a)) {
    const int64_t parts = ctx.num_threads();
    std::span<Sum<T>> scratch;
    if (!bev::kInPlace<T>) scratch = ctx.scratch<Sum<T>>(parts * a.C);
    ctx.parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        bev::pool_ordered(a, bev::first_cell(a, cells, part, parts),
                          bev::first_cell(a, cells, part + 1, parts), scratch.data() + part * a.C);
      }
    });
    return;
  }
  bev::sum_rows(ctx, a.out.data(), cells, a.C, [&](int64_t first, int64_t last, Sum<T>* sums) {
    bev::for_each_point(a, [&](int64_t p) {
      const int64_t cell = a.ranks_bev[p];
      if (cell < first || cell >= last) return;
      bev::add_scaled(sums + (cell - first) * a.C, static_cast<Sum<T>>(a.depth[a.ranks_depth[p]]),
                      a.feat.data() + a.ranks_feat[p] * a.C, a.C);
    });
  });
}
OPSMITH_KERNEL(bev, bev_pool_v2, cpu, float, double, opsmith::half, opsmith::bfloat16)
