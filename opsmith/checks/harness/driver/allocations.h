// Counts memory that kernels allocate and do not free. A sanitizer has its own allocator, and its
// own detection of leaks.
#pragma once

#include "memory.h"

#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

namespace opsmith::harness {

struct Allocated {
  int64_t blocks = 0;
  int64_t bytes = 0;
};

inline std::atomic<int64_t> live_blocks{0};
inline std::atomic<int64_t> live_bytes{0};

inline Allocated allocated() { return {live_blocks.load(), live_bytes.load()}; }

inline void* counted(void* memory) {
  if (memory != nullptr) {
    live_blocks.fetch_add(1, std::memory_order_relaxed);
    live_bytes.fetch_add(static_cast<int64_t>(malloc_usable_size(memory)),
                         std::memory_order_relaxed);
  }
  return memory;
}
inline void* uncounted(void* memory) {
  if (memory != nullptr) {
    live_blocks.fetch_sub(1, std::memory_order_relaxed);
    live_bytes.fetch_sub(static_cast<int64_t>(malloc_usable_size(memory)),
                         std::memory_order_relaxed);
  }
  return memory;
}

}  // namespace opsmith::harness

#if defined(__GLIBC__) && !defined(OPSMITH_HARNESS_SANITIZED)
// glibc allows a program to replace these functions, and keeps its own under other names.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);

void* malloc(size_t size) noexcept { return opsmith::harness::counted(__libc_malloc(size)); }
void* calloc(size_t count, size_t size) noexcept {
  return opsmith::harness::counted(__libc_calloc(count, size));
}
void* realloc(void* memory, size_t size) noexcept {
  opsmith::harness::uncounted(memory);
  void* moved = __libc_realloc(memory, size);
  // If realloc failed, the old block is still allocated.
  opsmith::harness::counted(moved == nullptr && size != 0 ? memory : moved);
  return moved;
}
void* memalign(size_t alignment, size_t size) noexcept {
  return opsmith::harness::counted(__libc_memalign(alignment, size));
}
void* aligned_alloc(size_t alignment, size_t size) noexcept { return memalign(alignment, size); }
int posix_memalign(void** memory, size_t alignment, size_t size) noexcept {
  *memory = memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}
void free(void* memory) noexcept { __libc_free(opsmith::harness::uncounted(memory)); }
}
#endif
