// Scans over a tile of a warp.
#pragma once

#include <cooperative_groups/reduce.h>

namespace cooperative_groups {

template <unsigned Size, typename Parent, typename T, typename Operation = plus<T>>
T inclusive_scan(const thread_block_tile<Size, Parent>& tile, T value, Operation combine = {},
                 opsmith_place place = emulated::here()) {
  for (unsigned reach = 1; reach < Size; reach *= 2) {
    const T before = tile.shfl_up(value, reach, place);
    if (tile.thread_rank() >= reach) value = combine(before, value);
  }
  return value;
}
template <unsigned Size, typename Parent, typename T, typename Operation = plus<T>>
T exclusive_scan(const thread_block_tile<Size, Parent>& tile, T value, Operation combine = {},
                 opsmith_place place = emulated::here()) {
  const T until = tile.shfl_up(inclusive_scan(tile, value, combine, place), 1, place);
  return tile.thread_rank() == 0 ? T{} : until;
}

}  // namespace cooperative_groups
