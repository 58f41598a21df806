// Copies to shared memory that go on while threads do.
#pragma once

#include <emulated/cuda.h>

namespace emulated {

// Begins the part of a copy that the running thread makes for its group. Inlined, so that the place
// of the copy is the user's line.
template <typename Group>
__forceinline__ void copy_together(const Group& group, void* to, const void* from, size_t bytes,
                                   size_t piece) {
  const size_t step = group.size() * piece;
  for (size_t at = group.thread_rank() * piece; at < bytes; at += step) {
    copy_later(static_cast<char*>(to) + at, static_cast<const char*>(from) + at,
               bytes - at < piece ? bytes - at : piece, 0);
  }
}

}  // namespace emulated
