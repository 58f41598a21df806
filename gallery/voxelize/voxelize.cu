#include "voxelize.h"

#include <opsmith/cuda.h>

#include <algorithm>
#include <cstdint>
#include <span>

#include "../segments.cuh"
#include "grid.h"

namespace {

using gallery::kThreads, gallery::Segments;
using perception::Grid;

constexpr unsigned long long kEmpty = ~0ull;  // an entry of the table without a cell

__device__ int64_t own_item() { return blockIdx.x * int64_t{blockDim.x} + threadIdx.x; }

// Finds the entry of each point's cell, and of each cell its first point: the least of them, so
// that no order of the threads changes it.
template <typename T>
__global__ void find_cells(const T* points, int64_t count, int64_t columns, Grid grid, int64_t size,
                           unsigned long long* table, unsigned* firsts, int64_t* entries) {
  const int64_t i = own_item();
  if (i >= count) return;
  const int64_t cell = grid.cell_of(points + i * columns);
  int64_t at = -1;
  if (cell != perception::kOutside) {
    const auto own = static_cast<unsigned long long>(cell);
    at = static_cast<int64_t>(perception::hash_of(cell)) & (size - 1);
    for (;; at = (at + 1) & (size - 1)) {
      const unsigned long long there = atomicCAS(table + at, kEmpty, own);
      if (there == kEmpty || there == own) break;
    }
    atomicMin(firsts + at, static_cast<unsigned>(i));
  }
  entries[i] = at;
}

// rows[i] = 0 for the first point of a cell, 1 for others.
static __global__ void mark_firsts(const int64_t* entries, const unsigned* firsts, int64_t count,
                                   int32_t* rows) {
  const int64_t i = own_item();
  if (i >= count) return;
  rows[i] = entries[i] >= 0 && firsts[entries[i]] == static_cast<unsigned>(i) ? 0 : 1;
}

// A cell's number is that of its first point among the first points.
static __global__ void number_cells(Segments firsts, const int64_t* entries, int64_t count,
                                    int32_t* numbers) {
  const int64_t k = own_item();
  if (k >= count || k >= firsts.starts[1]) return;
  numbers[entries[firsts.point(static_cast<int32_t>(k))]] = static_cast<int32_t>(k);
}

// rows[i] = the voxel of point i, `voxels` where it has none.
static __global__ void find_voxels(const int64_t* entries, const int32_t* numbers, int64_t count,
                                   int64_t voxels, int32_t* rows) {
  const int64_t i = own_item();
  if (i >= count) return;
  const int64_t voxel = entries[i] >= 0 ? numbers[entries[i]] : voxels;
  rows[i] = static_cast<int32_t>(voxel < voxels ? voxel : voxels);
}

template <typename T>
__global__ void write_points(const T* points, Segments members, int64_t items, int64_t most,
                             int64_t columns, T* out) {
  const int64_t item = own_item();
  if (item >= items) return;
  const int64_t voxel = item / columns / most, rank = item / columns % most;
  const int64_t place = members.starts[voxel] + rank;
  const bool is_there = place < members.starts[voxel + 1];
  const int64_t point = is_there ? members.point(static_cast<int32_t>(place)) : 0;
  out[item] = is_there ? points[point * columns + item % columns] : T(0);
}

template <typename T>
__global__ void write_places(const T* points, Segments members, Grid grid, int64_t voxels,
                             int64_t most, int64_t columns, int32_t* places, int32_t* counts) {
  const int64_t voxel = own_item();
  if (voxel >= voxels) return;
  const int64_t begin = members.starts[voxel], number = members.starts[voxel + 1] - begin;
  const int64_t first = members.point(static_cast<int32_t>(begin));
  grid.write_place(grid.cell_of(points + first * columns), places + 3 * voxel);
  counts[voxel] = static_cast<int32_t>(number < most ? number : most);
}

}  // namespace

template <typename T>
void voxelize(const opsmith::Context& ctx, const perception::voxelize_args<T>& a) {
  const Grid grid = perception::grid_of(ctx, a.voxel_size, a.point_cloud_range);
  const int64_t most = std::min(a.N, a.max_voxels), size = perception::table_size(a.N);
  gallery::Segmenter by_rank(ctx, a.N, 1), by_voxel(ctx, a.N, most);
  Segments members = {};
  int32_t count = 0;
  if (a.N > 0) {
    const cudaStream_t stream = opsmith::cuda_stream(ctx);
    const unsigned blocks = opsmith::blocks_for(a.N, kThreads);
    const auto table = ctx.scratch<unsigned long long>(size);
    const auto firsts = ctx.scratch<unsigned>(size);
    int32_t* numbers = ctx.scratch<int32_t>(size).data();
    int64_t* entries = ctx.scratch<int64_t>(a.N).data();
    int32_t* rows = ctx.scratch<int32_t>(a.N).data();
    for (const auto bytes : {std::as_writable_bytes(table), std::as_writable_bytes(firsts)}) {
      opsmith::check_cuda(ctx, cudaMemsetAsync(bytes.data(), 0xff, bytes.size(), stream),
                          "cudaMemsetAsync");
    }
    opsmith::launch(ctx, find_cells<T>, blocks, kThreads, 0, a.points.data(), a.N, a.C, grid, size,
                    table.data(), firsts.data(), entries);
    opsmith::launch(ctx, mark_firsts, blocks, kThreads, 0, entries, firsts.data(), a.N, rows);
    const Segments ranked = by_rank(rows, a.N);
    opsmith::launch(ctx, number_cells, blocks, kThreads, 0, ranked, entries, a.N, numbers);
    // How many there are decides the sizes of the results, which the host has to know.
    opsmith::check_cuda(
        ctx,
        cudaMemcpyAsync(&count, ranked.starts + 1, sizeof count, cudaMemcpyDeviceToHost, stream),
        "cudaMemcpyAsync");
    opsmith::launch(ctx, find_voxels, blocks, kThreads, 0, entries, numbers, a.N, most, rows);
    members = by_voxel(rows, a.N);
    opsmith::check_cuda(ctx, cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }
  const int64_t voxels = std::min<int64_t>(count, a.max_voxels);
  const auto out = a.out0.allocate({voxels, a.max_points, a.C});
  const auto places = a.out1.allocate({voxels, 3});
  const auto counts = a.out2.allocate({voxels});
  if (voxels == 0) return;
  opsmith::launch(ctx, write_points<T>, opsmith::blocks_for(out.numel(), kThreads), kThreads, 0,
                  a.points.data(), members, out.numel(), a.max_points, a.C, out.data());
  opsmith::launch(ctx, write_places<T>, opsmith::blocks_for(voxels, kThreads), kThreads, 0,
                  a.points.data(), members, grid, voxels, a.max_points, a.C, places.data(),
                  counts.data());
}
OPSMITH_KERNEL(perception, voxelize, cuda, float, double, opsmith::half, opsmith::bfloat16)
