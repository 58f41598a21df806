// CUB's loads and stores of a block; see cub.h.
#pragma once

#include <emulated/cub.h>

namespace cub {

enum BlockLoadAlgorithm {
  BLOCK_LOAD_DIRECT,
  BLOCK_LOAD_STRIPED,
  BLOCK_LOAD_VECTORIZE,
  BLOCK_LOAD_TRANSPOSE,
  BLOCK_LOAD_WARP_TRANSPOSE,
  BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED
};
enum BlockStoreAlgorithm {
  BLOCK_STORE_DIRECT,
  BLOCK_STORE_STRIPED,
  BLOCK_STORE_VECTORIZE,
  BLOCK_STORE_TRANSPOSE,
  BLOCK_STORE_WARP_TRANSPOSE,
  BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED
};

namespace detail {

// The items of the threads of a block or warp, as they exchange them: a thread has neighbouring
// items, and global memory is accessed by neighbouring threads.
struct Exchanged {
  unsigned first;    // item of the group
  unsigned threads;  // of the group
  unsigned rank;     // in the group
  opsmith_mask mask;
  bool block;

  __forceinline__ Exchanged(bool whole, unsigned all, unsigned items)
      : first(0), threads(all), rank(thread_in_block()), mask(0), block(whole) {
    if (whole) return;
    const unsigned lane = emulated::lane_number();
    first = (rank - lane) * items;
    const unsigned left = all - (rank - lane);
    threads = left < emulated::warp_size ? left : emulated::warp_size;
    mask = emulated::every_lane;
    rank = lane;
  }
  __forceinline__ void barrier(opsmith_place place) const {
    if (block) {
      __syncthreads(place);
    } else {
      __syncwarp(mask, place);
    }
  }
};

}  // namespace detail

template <typename T, int X, int Items, BlockLoadAlgorithm Algorithm = BLOCK_LOAD_DIRECT, int Y = 1,
          int Z = 1, int = 0>
class BlockLoad {
  static constexpr unsigned threads = X * Y * Z;
  static constexpr bool exchanges = Algorithm >= BLOCK_LOAD_TRANSPOSE;

 public:
  using TempStorage = detail::Room<T, exchanges ? threads * Items : 1>;
  __forceinline__ explicit BlockLoad(OPSMITH_CUB_PLACE)
      : room_(detail::own_storage<TempStorage>(place)) {}
  __forceinline__ explicit BlockLoad(TempStorage& storage) : room_(storage) {}

  template <typename From, typename Default>
    requires(!std::is_same_v<Default, opsmith_place>)
  __forceinline__ void Load(From from, T (&items)[Items], int valid, Default other,
                            OPSMITH_CUB_PLACE) {
    for (T& item : items) item = other;
    Load(from, items, valid, place);
  }
  // Leaves items after `valid` as they are.
  template <typename From>
  __forceinline__ void Load(From from, T (&items)[Items], int valid = threads * Items,
                            OPSMITH_CUB_PLACE) {
    OPSMITH_CUB_BLOCK("cub::BlockLoad");
    const auto has = [valid](unsigned number) { return static_cast<int>(number) < valid; };
    const unsigned rank = detail::thread_in_block();
    if constexpr (exchanges) {
      const detail::Exchanged group(Algorithm == BLOCK_LOAD_TRANSPOSE, threads, Items);
      for (int i = 0; i < Items; ++i) {
        const unsigned number = group.first + i * group.threads + group.rank;
        if (has(number)) room_.data()[number] = from[number];
      }
      group.barrier(place);
      for (int i = 0; i < Items; ++i) {
        const unsigned number = group.first + group.rank * Items + i;
        if (has(number)) items[i] = room_.data()[number];
      }
    } else {
      for (int i = 0; i < Items; ++i) {
        const unsigned number =
            Algorithm == BLOCK_LOAD_STRIPED ? i * threads + rank : rank * Items + i;
        if (has(number)) items[i] = from[number];
      }
    }
  }

 private:
  TempStorage& room_;
};

template <typename T, int X, int Items, BlockStoreAlgorithm Algorithm = BLOCK_STORE_DIRECT,
          int Y = 1, int Z = 1, int = 0>
class BlockStore {
  static constexpr unsigned threads = X * Y * Z;
  static constexpr bool exchanges = Algorithm >= BLOCK_STORE_TRANSPOSE;

 public:
  using TempStorage = detail::Room<T, exchanges ? threads * Items : 1>;
  __forceinline__ explicit BlockStore(OPSMITH_CUB_PLACE)
      : room_(detail::own_storage<TempStorage>(place)) {}
  __forceinline__ explicit BlockStore(TempStorage& storage) : room_(storage) {}

  template <typename To>
  __forceinline__ void Store(To to, T (&items)[Items], int valid = threads * Items,
                             OPSMITH_CUB_PLACE) {
    OPSMITH_CUB_BLOCK("cub::BlockStore");
    const auto has = [valid](unsigned number) { return static_cast<int>(number) < valid; };
    const unsigned rank = detail::thread_in_block();
    if constexpr (exchanges) {
      const detail::Exchanged group(Algorithm == BLOCK_STORE_TRANSPOSE, threads, Items);
      for (int i = 0; i < Items; ++i) room_.data()[group.first + group.rank * Items + i] = items[i];
      group.barrier(place);
      for (int i = 0; i < Items; ++i) {
        const unsigned number = group.first + i * group.threads + group.rank;
        if (has(number)) to[number] = room_.data()[number];
      }
    } else {
      for (int i = 0; i < Items; ++i) {
        const unsigned number =
            Algorithm == BLOCK_STORE_STRIPED ? i * threads + rank : rank * Items + i;
        if (has(number)) to[number] = items[i];
      }
    }
  }

 private:
  TempStorage& room_;
};

}  // namespace cub
