// Copies to shared memory that the threads of a group make together, and wait for together.
#pragma once

#include <cooperative_groups.h>

namespace cooperative_groups {

// Inlined, so that the place of the copy is the user's line.
template <typename Group, typename T>
__forceinline__ void memcpy_async(const Group& group, T* to, const T* from, size_t bytes) {
  constexpr size_t piece = alignof(T) % 4 == 0 ? 4 : 1;
  const size_t step = group.size() * piece;
  for (size_t at = group.thread_rank() * piece; at < bytes; at += step) {
    opsmith::emulated::copy_later(reinterpret_cast<char*>(to) + at,
                                  reinterpret_cast<const char*>(from) + at,
                                  bytes - at < piece ? bytes - at : piece, 0);
  }
  opsmith::emulated::commit_copies();
}

template <unsigned groups, typename Group>
void wait_prior(const Group& group) {
  opsmith::emulated::wait_for_copies(groups);
  group.sync();
}

template <typename Group>
void wait(const Group& group) {
  wait_prior<0>(group);
}

}  // namespace cooperative_groups
