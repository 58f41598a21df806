// Faults with CUB's collectives, reductions of groups, tensor cores and numbers of 8 bits; see
// faults.cu for the form.
#include "collectives.h"

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_fp8.h>
#include <mma.h>
#include <opsmith/cuda.h>
#include <cub/cub.cuh>
#include <cuda/functional>

#include <cstdint>

namespace {

constexpr int kThreads = 96;
constexpr int kItems = 4;

#define COLLECTIVE(name) \
  template <bool kWrong> \
  __global__ void name(const float* x, float* out, int n)

using Reduce = cub::BlockReduce<float, kThreads>;
using Scan = cub::BlockScan<float, kThreads, cub::BLOCK_SCAN_WARP_SCANS>;
using Load = cub::BlockLoad<float, kThreads, kItems, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
using Store = cub::BlockStore<float, kThreads, kItems, cub::BLOCK_STORE_TRANSPOSE>;

__device__ float one_of(const float* x, int n) {
  return int(threadIdx.x) < n ? x[threadIdx.x] : 0.0f;
}

__device__ void give_all(float* out, int n, float value) {
  __shared__ float all;
  if (threadIdx.x == 0) all = value;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += kThreads) out[i] = all;
}

COLLECTIVE(memory_of_a_reduction_used_again) {
  __shared__ Reduce::TempStorage room;
  const float value = one_of(x, n);
  const float most = Reduce(room).Reduce(value, cuda::maximum<>());
  if constexpr (!kWrong) __syncthreads();
  const float sum = Reduce(room).Sum(value);  // FAULT
  give_all(out, n, sum + 0 * most);
}

COLLECTIVE(sum_taken_by_all) {
  __shared__ Reduce::TempStorage room;
  const float sum = Reduce(room).Sum(one_of(x, n));
  if constexpr (kWrong) {
    for (int i = threadIdx.x; i < n; i += kThreads) out[i] = sum;
  } else {
    give_all(out, n, sum);
  }
}

COLLECTIVE(sum_in_a_branch) {
  __shared__ Reduce::TempStorage room;
  float sum = 0;
  if (!kWrong || int(threadIdx.x) < n) {
    sum = Reduce(room).Sum(one_of(x, n));  // FAULT
  }
  give_all(out, n, sum);
}

COLLECTIVE(sum_of_those_that_have_none) {
  __shared__ Reduce::TempStorage room;
  float value;
  if (int(threadIdx.x) < n) value = x[threadIdx.x];
  if (int(threadIdx.x) >= n) value = 1.0f;
  give_all(out, n, Reduce(room).Sum(value, kWrong ? kThreads : n));
}

COLLECTIVE(declared_for_other_threads) {
  using Other = cub::BlockReduce<float, kWrong ? 128 : kThreads>;
  __shared__ typename Other::TempStorage room;
  const float sum = Other(room).Sum(one_of(x, n));  // FAULT
  give_all(out, n, sum);
}

COLLECTIVE(one_memory_for_two_warps) {
  using Warp = cub::WarpReduce<float>;
  __shared__ typename Warp::TempStorage rooms[3];
  __shared__ float sums[3];
  const int warp = threadIdx.x / 32;
  const float sum = Warp(rooms[kWrong ? 0 : warp]).Sum(one_of(x, n));  // FAULT
  if (threadIdx.x % 32 == 0) sums[warp] = sum;
  __syncthreads();
  give_all(out, n, sums[0] + sums[1] + sums[2]);
}

COLLECTIVE(memory_in_a_union) {
  __shared__ union {
    typename Load::TempStorage load;
    typename Scan::TempStorage scan;
    typename Store::TempStorage store;
  } room;
  float items[kItems] = {};
  Load(room.load).Load(x, items, n);
  if constexpr (!kWrong) __syncthreads();
  Scan(room.scan).InclusiveSum(items, items);  // FAULT
  __syncthreads();
  Store(room.store).Store(out, items, n);
}

COLLECTIVE(load_past_the_end) {
  __shared__ typename Load::TempStorage load;
  __shared__ typename Store::TempStorage store;
  float items[kItems];
  if constexpr (kWrong) {
    Load(load).Load(x, items);  // FAULT
  } else {
    Load(load).Load(x, items, n, 0.0f);
  }
  Store(store).Store(out, items, n);
}

COLLECTIVE(store_past_the_end) {
  float items[kItems];
  cub::BlockLoad<float, kThreads, kItems, cub::BLOCK_LOAD_DIRECT>().Load(x, items, n, 0.0f);
  cub::BlockStore<float, kThreads, kItems> store;
  if constexpr (kWrong) {
    store.Store(out, items);  // FAULT
  } else {
    store.Store(out, items, n);
  }
}

// Adds what all blocks of items before have; the first warp asks for it.
struct Running {
  float sum;
  __device__ float operator()(float of_block) {
    const float before = sum;
    sum += of_block;
    return before;
  }
};

COLLECTIVE(scan_in_rounds) {
  __shared__ typename Scan::TempStorage room;
  Running running{0};
  for (int start = 0; start < n; start += kThreads) {
    float value = start + int(threadIdx.x) < n ? x[start + threadIdx.x] : 0.0f;
    Scan(room).InclusiveSum(value, value, running);  // FAULT
    if constexpr (!kWrong) __syncthreads();
    if (start + int(threadIdx.x) < n) out[start + threadIdx.x] = value;
  }
}

COLLECTIVE(places_by_an_exclusive_sum) {
  using Places = cub::BlockScan<int, kThreads>;
  __shared__ typename Places::TempStorage room;
  const int has = int(threadIdx.x) < n ? 1 : 0;
  int place, count;
  Places(room).ExclusiveSum(has, place, count);
  if (has) out[kWrong ? place + 1 : count - 1 - place] = x[threadIdx.x];  // FAULT
}

// 1000 is more than a number of this kind holds.
COLLECTIVE(not_clamped) {
  const auto clamp = kWrong ? __NV_NOSAT : __NV_SATFINITE;
  for (int i = threadIdx.x; i < n; i += kThreads) {
    const __nv_fp8_storage_t most = __nv_cvt_float_to_fp8(1000.0f, clamp, __NV_E4M3);
    const __nv_fp8_e5m2 two(2.0f);
    const float halves = __half2float(__half(__nv_cvt_fp8_to_halfraw(most, __NV_E4M3)));
    out[i] = x[i] * (halves / 448.0f) * float(two) / 2.0f;
  }
}

// The name of the kernel is pasted together, and another launched out of a table.
COLLECTIVE(own_value_in_the_sum_before) {
  using WarpScan = cub::WarpScan<float>;
  __shared__ WarpScan::TempStorage rooms[kThreads / 32];
  WarpScan scan(rooms[threadIdx.x / 32]);
  float before;
  if constexpr (kWrong) {
    scan.InclusiveSum(one_of(x, n), before);
  } else {
    scan.ExclusiveSum(one_of(x, n), before);
  }
  if (int(threadIdx.x) < n) out[threadIdx.x] = before;
}

COLLECTIVE(own_value_in_the_most_before) {
  __shared__ Scan::TempStorage room;
  float before;
  if constexpr (kWrong) {
    Scan(room).InclusiveScan(one_of(x, n), before, cuda::maximum<>());
  } else {
    Scan(room).ExclusiveScan(one_of(x, n), before, 0.0f, cuda::maximum<>());
  }
  if (int(threadIdx.x) < n) out[threadIdx.x] = before;
}

// --- cooperative groups ------------------------------------------------------------------------

// The greatest of some numbers, and the sum of exponentials beside it.
template <bool kWrong>
struct Combine {
  __device__ float2 operator()(float2 a, float2 b) const {
    const float2 more = a.x > b.x ? a : b, less = a.x > b.x ? b : a;
    if (!kWrong && less.x == -INFINITY) return more;
    return {more.x, more.y + less.y * expf(less.x - more.x)};
  }
};

COLLECTIVE(lanes_of_nothing_meet) {
  const auto warp =
      cooperative_groups::tiled_partition<32>(cooperative_groups::this_thread_block());
  if (warp.meta_group_rank() != 0) return;
  const int lane = warp.thread_rank();
  const float2 own = lane < n ? float2{x[lane], 1.0f} : float2{-INFINITY, 0.0f};
  const float2 all = cooperative_groups::reduce(warp, own, Combine<kWrong>());
  if (lane < n) out[lane] = all.y * expf(all.x);
}

// --- tensor cores ------------------------------------------------------------------------------

enum class Slip { none, not_cleared, some_lanes, no_barrier, odd_stride, past_the_end, by_columns };

template <Slip slip>
__device__ void multiply(const float* x, float* out, int n) {
  using namespace nvcuda;
  constexpr int stride = slip == Slip::odd_stride ? 17 : 24;
  __shared__ __align__(32) __half tile[16 * 24];
  const int lane = threadIdx.x;
  if (lane >= (slip == Slip::some_lanes ? 16 : 32)) return;
  for (int i = lane; i < n; i += slip == Slip::some_lanes ? 16 : 32) {
    tile[i / 16 * stride + i % 16] = __float2half(x[i]);
  }
  if constexpr (slip == Slip::some_lanes) {
    __syncwarp(0xffff);
  } else if constexpr (slip != Slip::no_barrier) {
    __syncwarp();
  }
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> left;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> right;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  if constexpr (slip != Slip::not_cleared) wmma::fill_fragment(sum, 0.0f);
  wmma::load_matrix_sync(left, tile, stride);  // FAULT multiply
  wmma::load_matrix_sync(right, tile, stride);
  wmma::mma_sync(sum, left, right, sum);
  for (float& element : sum.x) element *= 2;
  const auto layout = slip == Slip::by_columns ? wmma::mem_col_major : wmma::mem_row_major;
  wmma::store_matrix_sync(out + (slip == Slip::past_the_end ? 16 : 0), sum, 16,  // FAULT multiply
                          layout);                                               // FAULT multiply
}

#define PRODUCT(name, slip) \
  COLLECTIVE(name) { multiply<kWrong ? Slip::slip : Slip::none>(x, out, n); }
PRODUCT(sum_not_cleared, not_cleared)
PRODUCT(product_of_some_lanes, some_lanes)
PRODUCT(matrix_without_barrier, no_barrier)
PRODUCT(matrix_of_odd_stride, odd_stride)
PRODUCT(matrix_past_the_end, past_the_end)
PRODUCT(matrix_by_columns, by_columns)

// Each thread of the grid has a rank; the barrier of a grid wants a cooperative launch.
COLLECTIVE(barrier_of_a_grid) {
  const auto grid = cooperative_groups::this_grid();
  const bool all = grid.size() == kThreads && grid.block_rank() == 0;
  for (auto i = grid.thread_rank(); i < n; i += grid.num_threads()) out[i] = all ? x[i] : -1.0f;
  if constexpr (kWrong) grid.sync();  // FAULT
}

using Kernel = void (*)(const float*, float*, int);
#define PASTED(first, second) first##_##second<kWrong><<<1, kThreads, 0, stream>>>(x, out, n)
COLLECTIVE(pasted_name) {
  for (int i = threadIdx.x; i < n; i += kThreads) out[kWrong ? n - i : i] = x[i];  // FAULT
}

template <bool kWrong>
void launch(const std::string& name, cudaStream_t stream, const float* x, float* out, int n) {
  if (name == "pasted_name") {
    PASTED(pasted, name);
    return;
  }
  struct {
    const char* name;
    Kernel kernel;
  } const table[] = {
#define ROW(name) {#name, name<kWrong>}
      ROW(memory_of_a_reduction_used_again),
      ROW(sum_taken_by_all),
      ROW(sum_in_a_branch),
      ROW(sum_of_those_that_have_none),
      ROW(declared_for_other_threads),
      ROW(one_memory_for_two_warps),
      ROW(memory_in_a_union),
      ROW(load_past_the_end),
      ROW(store_past_the_end),
      ROW(scan_in_rounds),
      ROW(places_by_an_exclusive_sum),
      ROW(not_clamped),
      ROW(own_value_in_the_sum_before),
      ROW(own_value_in_the_most_before),
      ROW(lanes_of_nothing_meet),
      ROW(sum_not_cleared),
      ROW(product_of_some_lanes),
      ROW(matrix_without_barrier),
      ROW(matrix_of_odd_stride),
      ROW(matrix_past_the_end),
      ROW(matrix_by_columns),
      ROW(barrier_of_a_grid),
  };
  Kernel kernels[1] = {};
  for (const auto& row : table) {
    if (name == row.name) kernels[0] = row.kernel;
  }
  kernels[0]<<<1, kThreads, 0, stream>>>(x, out, n);
}

}  // namespace

void collectives(const opsmith::Context& ctx, const cuda_faults::collectives_args& a) {
  const auto run = a.wrong ? launch<true> : launch<false>;
  run(std::string(a.fault), opsmith::cuda_stream(ctx), a.x.data(), a.out.data(),
      static_cast<int>(a.N));
}
OPSMITH_KERNEL(cuda_faults, collectives, cuda)
