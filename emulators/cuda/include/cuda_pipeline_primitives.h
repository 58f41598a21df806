#pragma once

#include <emulated/cuda.h>

// Inlined, so that the place of the copy is the user's line.
__forceinline__ void __pipeline_memcpy_async(void* to, const void* from, size_t bytes,
                                             size_t zeros = 0,
                                             emulated::Place place = emulated::here()) {
  using emulated::fail;
  if (bytes != 4 && bytes != 8 && bytes != 16) {
    fail("__pipeline_memcpy_async copies 4, 8 or 16 bytes", place);
  }
  if ((reinterpret_cast<uint64_t>(to) | reinterpret_cast<uint64_t>(from)) % bytes != 0) {
    fail("__pipeline_memcpy_async copies at an address that is not a multiple of the size", place);
  }
  if (zeros > bytes) fail("__pipeline_memcpy_async fills more bytes than it copies", place);
  emulated::copy_later(to, from, bytes, zeros);
}
inline void __pipeline_commit() { emulated::commit_copies(); }
inline void __pipeline_wait_prior(size_t groups) { emulated::wait_for_copies(groups); }
