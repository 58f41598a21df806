// Cooperative groups of a block, and of lanes of a warp: other names for barriers and exchanges.
#pragma once

#include <emulated/cuda.h>

namespace cooperative_groups {

namespace details {

using emulated::thread_in_block;
using emulated::threads_of_block;

// The lanes of a tile, as many of them as the block has.
inline opsmith_mask lanes_of_tile(unsigned size) {
  const unsigned lane = emulated::lane_number();
  const unsigned left = threads_of_block() - (thread_in_block() - lane);
  const auto first = [](unsigned count) {
    return count >= emulated::warp_size ? emulated::every_lane : (opsmith_mask{1} << count) - 1;
  };
  const opsmith_mask present = first(left);
  const opsmith_mask tile = first(size) << (size >= emulated::warp_size ? 0 : lane / size * size);
  return present & tile;
}

}  // namespace details

class thread_block {
 public:
  void sync(opsmith_place place = emulated::here()) const { __syncthreads(place); }
  static unsigned thread_rank() { return details::thread_in_block(); }
  static unsigned size() { return details::threads_of_block(); }
  static unsigned num_threads() { return size(); }
  static dim3 group_index() { return blockIdx; }
  static dim3 thread_index() { return threadIdx; }
  static dim3 group_dim() { return blockDim; }
  static dim3 dim_threads() { return blockDim; }
};

inline thread_block this_thread_block() { return {}; }

// The grid, whose barrier needs a cooperative launch, which is not emulated.
class grid_group {
 public:
  static unsigned long long block_rank() {
    return blockIdx.x + 1ull * gridDim.x * (blockIdx.y + 1ull * gridDim.y * blockIdx.z);
  }
  static unsigned long long num_blocks() { return 1ull * gridDim.x * gridDim.y * gridDim.z; }
  static unsigned long long thread_rank() {
    return block_rank() * details::threads_of_block() + details::thread_in_block();
  }
  static unsigned long long size() { return num_blocks() * details::threads_of_block(); }
  static unsigned long long num_threads() { return size(); }
  static dim3 block_index() { return blockIdx; }
  static dim3 group_dim() { return gridDim; }
  static dim3 dim_blocks() { return gridDim; }
  static bool is_valid() { return false; }
  [[noreturn]] void sync(opsmith_place place = emulated::here()) const {
    emulated::fail("grid.sync() in a grid without a cooperative launch", place);
  }
};

inline grid_group this_grid() { return {}; }

// A tile of neighbouring lanes of a warp, of a size known when compiling.
template <unsigned Size, typename Parent = void>
class thread_block_tile {
  static_assert(Size >= 1 && Size <= warpSize && (Size & (Size - 1)) == 0,
                "opsmith emulates tiles of 1, 2, 4, 8, 16 and 32 threads, and of 64 in such warps");

 public:
  thread_block_tile(unsigned rank, unsigned count) : meta_rank_(rank), meta_count_(count) {}
  template <typename Other>
  thread_block_tile(const thread_block_tile<Size, Other>& other)
      : meta_rank_(other.meta_group_rank()), meta_count_(other.meta_group_size()) {}

  static constexpr unsigned size() { return Size; }
  static constexpr unsigned num_threads() { return Size; }
  static unsigned thread_rank() { return emulated::lane_number() % Size; }
  static opsmith_mask lanes() { return details::lanes_of_tile(Size); }
  unsigned meta_group_rank() const { return meta_rank_; }
  unsigned meta_group_size() const { return meta_count_; }

  void sync(opsmith_place place = emulated::here()) const { __syncwarp(lanes(), place); }
  template <typename T>
  T shfl(T value, int source, opsmith_place place = emulated::here()) const {
    return __shfl_sync<T, true>(lanes(), value, source, Size, place);
  }
  template <typename T>
  T shfl_down(T value, unsigned delta, opsmith_place place = emulated::here()) const {
    return __shfl_down_sync<T, true>(lanes(), value, delta, Size, place);
  }
  template <typename T>
  T shfl_up(T value, unsigned delta, opsmith_place place = emulated::here()) const {
    return __shfl_up_sync<T, true>(lanes(), value, delta, Size, place);
  }
  template <typename T>
  T shfl_xor(T value, unsigned mask, opsmith_place place = emulated::here()) const {
    return __shfl_xor_sync<T, true>(lanes(), value, static_cast<int>(mask), Size, place);
  }
  int any(int predicate, opsmith_place place = emulated::here()) const {
    return __any_sync(lanes(), predicate, place);
  }
  int all(int predicate, opsmith_place place = emulated::here()) const {
    return __all_sync(lanes(), predicate, place);
  }
  // Bit i stands for the lane of rank i in the tile.
  opsmith_mask ballot(int predicate, opsmith_place place = emulated::here()) const {
    return __ballot_sync(lanes(), predicate, place) >> first();
  }
  template <typename T>
  opsmith_mask match_any(T value, opsmith_place place = emulated::here()) const {
    return __match_any_sync(lanes(), value, place) >> first();
  }
  template <typename T>
  opsmith_mask match_all(T value, int& equal, opsmith_place place = emulated::here()) const {
    return __match_all_sync(lanes(), value, &equal, place) >> first();
  }

 private:
  static unsigned first() { return emulated::lane_number() / Size * Size; }

  unsigned meta_rank_, meta_count_;
};

template <unsigned Size>
thread_block_tile<Size, thread_block> tiled_partition(const thread_block&) {
  return {details::thread_in_block() / Size, (details::threads_of_block() + Size - 1) / Size};
}
template <unsigned Size, unsigned Whole, typename Parent>
thread_block_tile<Size, thread_block_tile<Whole, Parent>> tiled_partition(
    const thread_block_tile<Whole, Parent>& parent) {
  static_assert(Size <= Whole, "a tile is as large as what it is a part of, or smaller");
  return {parent.thread_rank() / Size, Whole / Size};
}

// Any of these groups, of a size known at run time; 0 stands for a whole block.
class thread_group {
 public:
  thread_group(const thread_block&) {}
  template <unsigned Size, typename Parent>
  thread_group(const thread_block_tile<Size, Parent>&) : tile_(Size) {}
  explicit thread_group(unsigned tile) : tile_(tile) {}

  unsigned size() const { return tile_ == 0 ? details::threads_of_block() : tile_; }
  unsigned num_threads() const { return size(); }
  unsigned thread_rank() const { return details::thread_in_block() % size(); }
  void sync(opsmith_place place = emulated::here()) const {
    if (tile_ == 0) {
      __syncthreads(place);
    } else {
      __syncwarp(details::lanes_of_tile(tile_), place);
    }
  }

 private:
  unsigned tile_ = 0;
};

inline thread_group tiled_partition(const thread_group& parent, unsigned size,
                                    opsmith_place place = emulated::here()) {
  const bool fits =
      size >= 1 && size <= warpSize && (size & (size - 1)) == 0 && size <= parent.size();
  if (!fits) emulated::fail("tiled_partition into tiles that are not emulated", place);
  return thread_group(size);
}

template <typename Group>
void sync(const Group& group, opsmith_place place = emulated::here()) {
  group.sync(place);
}
template <typename Group>
unsigned thread_rank(const Group& group) {
  return group.thread_rank();
}
template <typename Group>
unsigned group_size(const Group& group) {
  return group.size();
}

}  // namespace cooperative_groups
