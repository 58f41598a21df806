// Copies to shared memory that the threads of a group make together, and wait for together.
#pragma once

#include <cooperative_groups.h>
#include <emulated/copies.h>

namespace cooperative_groups {

// Inlined, so that the place of the copy is the user's line.
template <typename Group, typename T>
__forceinline__ void memcpy_async(const Group& group, T* to, const T* from, size_t bytes) {
  emulated::copy_together(group, to, from, bytes, alignof(T) % 4 == 0 ? 4 : 1);
  emulated::commit_copies();
}

template <unsigned groups, typename Group>
void wait_prior(const Group& group) {
  emulated::wait_for_copies(groups);
  group.sync();
}

template <typename Group>
void wait(const Group& group) {
  wait_prior<0>(group);
}

}  // namespace cooperative_groups
