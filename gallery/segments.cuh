// Which points belong to each row: what sums over rows need so that they are taken in the order of
// the points, without atomic operations on floating-point numbers.
#pragma once

#include <opsmith/cuda.h>

#include <algorithm>
#include <cstdint>
#include <span>

namespace gallery {

inline constexpr int kThreads = 256;
inline constexpr int kWarps = kThreads / 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// The points of row k are order[starts[k]] … order[starts[k + 1] - 1], in ascending order. Where
// the rows of the points only grow, `order` is left out: point i is i.
struct Segments {
  const int32_t* starts;    // rows + 1
  const int32_t* order;     // points
  const int32_t* unsorted;  // one number, 0 or 1

  __device__ int32_t point(int32_t i) const { return *unsorted != 0 ? order[i] : i; }
};

namespace sorting {

// Points are sorted by one digit of their rows after the other, the lowest first. A thread stands
// for a digit, too.
inline constexpr int kBits = 8;
static_assert(1 << kBits == kThreads);
inline constexpr int kShare = 8 * kThreads;  // points of a block

static __device__ int digit(int32_t row, int shift) { return (row >> shift) & (kThreads - 1); }

static __global__ void find_order(const int32_t* rows, int64_t points, int32_t* unsorted) {
  const int64_t p = blockIdx.x * int64_t{blockDim.x} + threadIdx.x + 1;
  if (p < points && rows[p] < rows[p - 1]) atomicOr(unsorted, 1);
}

// The sum of what the threads before this one have; `total` of what all have. `sums` is shared.
static __device__ int32_t sum_before(int32_t own, int32_t* sums, int32_t& total) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int32_t sum = own;
  for (int step = 1; step < 32; step *= 2) {
    const int32_t left = __shfl_up_sync(kAllLanes, sum, step);
    if (lane >= step) sum += left;
  }
  if (lane == 31) sums[warp] = sum;
  __syncthreads();
  int32_t before = 0;
  total = 0;
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) before += sums[w];
    total += sums[w];
  }
  __syncthreads();
  return before + sum - own;
}

// How often each digit comes in each block's share: counts[digit * blocks + block].
static __global__ void count_digits(const int32_t* rows, int64_t points, int shift,
                                    const int32_t* unsorted, int32_t* counts) {
  __shared__ int32_t count[kThreads];
  if (*unsorted == 0) return;
  count[threadIdx.x] = 0;
  __syncthreads();
  const int64_t begin = blockIdx.x * int64_t{kShare};
  const int64_t end = min(begin + kShare, points);
  for (int64_t p = begin + threadIdx.x; p < end; p += kThreads) {
    atomicAdd(count + digit(rows[p], shift), 1);
  }
  __syncthreads();
  counts[threadIdx.x * int64_t{gridDim.x} + blockIdx.x] = count[threadIdx.x];
}

// Makes of each count the sum of those of the blocks before it: a block for each digit that comes.
static __global__ void add_up_blocks(int64_t blocks, const int32_t* unsorted, int32_t* counts,
                                     int32_t* totals) {
  __shared__ int32_t sums[kWarps];
  if (*unsorted == 0) return;
  int32_t* own = counts + blockIdx.x * blocks;
  int32_t before = 0;
  for (int64_t first = 0; first < blocks; first += kThreads) {
    const int64_t block = first + threadIdx.x;
    int32_t total;
    const int32_t sum = sum_before(block < blocks ? own[block] : 0, sums, total);
    if (block < blocks) own[block] = before + sum;
    before += total;
  }
  if (threadIdx.x == 0) totals[blockIdx.x] = before;
}

// Puts each point behind those of lower digits, and those of its digit that came before it. `order`
// is null where point p is still p; digits from `digits` on come nowhere.
static __global__ void place_points(const int32_t* rows, const int32_t* order, int64_t points,
                                    int shift, int digits, const int32_t* unsorted,
                                    const int32_t* counts, const int32_t* totals,
                                    int32_t* placed_rows, int32_t* placed_order) {
  __shared__ int32_t sums[kWarps];
  __shared__ int32_t places[kWarps][kThreads];  // of each digit, for each warp
  if (*unsorted == 0) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int32_t total;
  // Where the next point of this thread's digit goes.
  const int32_t own_total = static_cast<int>(threadIdx.x) < digits ? totals[threadIdx.x] : 0;
  int32_t next =
      sum_before(own_total, sums, total) + counts[threadIdx.x * int64_t{gridDim.x} + blockIdx.x];
  const int64_t begin = blockIdx.x * int64_t{kShare};
  const int64_t end = min(begin + kShare, points);
  for (int64_t first = begin; first < end; first += kThreads) {
    for (int w = 0; w < kWarps; ++w) places[w][threadIdx.x] = 0;
    __syncthreads();
    const int64_t p = first + threadIdx.x;
    const int32_t row = p < end ? rows[p] : 0;
    const int own = p < end ? digit(row, shift) : kThreads;
    const unsigned alike = __match_any_sync(kAllLanes, own);
    const int rank = __popc(alike & ((1u << lane) - 1));
    if (p < end && rank == 0) places[warp][own] = __popc(alike);
    __syncthreads();
    for (int w = 0; w < kWarps; ++w) {
      const int32_t count = places[w][threadIdx.x];
      places[w][threadIdx.x] = next;
      next += count;
    }
    __syncthreads();
    if (p < end) {
      const int32_t place = places[warp][own] + rank;
      placed_rows[place] = row;
      placed_order[place] = order == nullptr ? static_cast<int32_t>(p) : order[p];
    }
    __syncthreads();
  }
}

// By binary search.
static __global__ void find_starts(const int32_t* rows, const int32_t* sorted, int64_t points,
                                   int64_t count, const int32_t* unsorted, int32_t* starts) {
  const int64_t row = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (row > count) return;
  const int32_t* in_order = *unsorted != 0 ? sorted : rows;
  int64_t low = 0, high = points;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (in_order[middle] < row) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  starts[row] = static_cast<int32_t>(low);
}

}  // namespace sorting

// Finds the points of each of `count` rows, with memory that serves call after call.
class Segmenter {
 public:
  // Up to `points` points, which are fewer than 2^31, as rows are.
  Segmenter(const opsmith::Context& ctx, int64_t points, int64_t count)
      : ctx_(ctx), count_(count), starts_(ctx.scratch<int32_t>(count + 1)) {
    unsorted_ = ctx.scratch<int32_t>(1).data();
    if (points == 0) return;
    counts_ =
        ctx.scratch<int32_t>(int64_t{kThreads} * opsmith::blocks_for(points, sorting::kShare));
    totals_ = ctx.scratch<int32_t>(kThreads);
    for (Sorted& each : sorted_) {
      each = {ctx.scratch<int32_t>(points).data(), ctx.scratch<int32_t>(points).data()};
    }
  }

  // What `rows` has at p is the row of point p; `count` where it belongs to none.
  Segments operator()(const int32_t* rows, int64_t points) {
    opsmith::check_cuda(
        ctx_, cudaMemsetAsync(unsorted_, 0, sizeof(*unsorted_), opsmith::cuda_stream(ctx_)),
        "cudaMemsetAsync");
    Sorted from = {const_cast<int32_t*>(rows), nullptr}, to = sorted_[0];
    if (points > 0) {
      opsmith::launch(ctx_, sorting::find_order, opsmith::blocks_for(points, kThreads), kThreads, 0,
                      rows, points, unsorted_);
      const unsigned blocks = opsmith::blocks_for(points, sorting::kShare);
      for (int shift = 0; shift < 31 && count_ >> shift > 0; shift += sorting::kBits) {
        const auto digits = static_cast<int>(std::min<int64_t>((count_ >> shift) + 1, kThreads));
        opsmith::launch(ctx_, sorting::count_digits, blocks, kThreads, 0, from.rows, points, shift,
                        unsorted_, counts_.data());
        opsmith::launch(ctx_, sorting::add_up_blocks, digits, kThreads, 0, int64_t{blocks},
                        unsorted_, counts_.data(), totals_.data());
        opsmith::launch(ctx_, sorting::place_points, blocks, kThreads, 0, from.rows, from.order,
                        points, shift, digits, unsorted_, counts_.data(), totals_.data(), to.rows,
                        to.order);
        from = to;
        to = to.rows == sorted_[0].rows ? sorted_[1] : sorted_[0];
      }
    }
    opsmith::launch(ctx_, sorting::find_starts, opsmith::blocks_for(count_ + 1, kThreads), kThreads,
                    0, rows, from.rows, points, count_, unsorted_, starts_.data());
    return {starts_.data(), from.order, unsorted_};
  }

 private:
  struct Sorted {
    int32_t *rows, *order;
  };

  const opsmith::Context& ctx_;
  int64_t count_;
  std::span<int32_t> starts_, counts_, totals_;
  int32_t* unsorted_;
  Sorted sorted_[2] = {};
};

}  // namespace gallery
