// Memory of gigabytes that takes a few megabytes: one file, mapped again and again.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <string>

namespace vast {

// The seed of a call that only the last blocks, and the last pieces of loops, are run of.
inline constexpr uint64_t ends_only = ~uint64_t{0} - 1;
// The size of the file, and of the smallest memory that is one.
inline constexpr uint64_t file_bytes = uint64_t{16} << 20;
inline constexpr uint64_t least_bytes = uint64_t{64} << 20;

// Returns a file that holds `pattern` again and again.
inline int file_of(std::string pattern) {
  while (pattern.size() < file_bytes) pattern.append(pattern, 0, file_bytes - pattern.size());
  const int file = memfd_create("opsmith", MFD_CLOEXEC);
  if (file < 0 || write(file, pattern.data(), file_bytes) != ssize_t{file_bytes}) {
    throw std::bad_alloc();
  }
  return file;
}

// Maps a file again and again to `bytes` from the page `start` on.
inline void map(char* start, uint64_t bytes, int file, bool writable) {
  const int access = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  for (uint64_t at = 0; at < bytes; at += file_bytes) {
    void* found =
        mmap(start + at, std::min(file_bytes, bytes - at), access, MAP_SHARED | MAP_FIXED, file, 0);
    if (found == MAP_FAILED) throw std::bad_alloc();
  }
}

}  // namespace vast
