// Memory of gigabytes that takes a few megabytes: one file, mapped again and again.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <string>

namespace opsmith::vast {

// The seed of a call that only the last blocks, and the last pieces of loops, are run of.
inline constexpr uint64_t ends_only = ~uint64_t{0} - 1;
// The size of the file, and of the smallest memory that is one.
inline constexpr uint64_t file_bytes = uint64_t{16} << 20;
inline constexpr uint64_t least_bytes = uint64_t{64} << 20;

// Maps `bytes` from the page `start` on, which hold `pattern` again and again.
inline void map(char* start, uint64_t bytes, std::string pattern, bool writable) {
  while (pattern.size() < file_bytes) pattern.append(pattern, 0, file_bytes - pattern.size());
  const int file = memfd_create("opsmith", MFD_CLOEXEC);
  bool done = file >= 0 && write(file, pattern.data(), file_bytes) == ssize_t{file_bytes};
  for (uint64_t at = 0; done && at < bytes; at += file_bytes) {
    done = mmap(start + at, std::min(file_bytes, bytes - at),
                writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED | MAP_FIXED, file,
                0) != MAP_FAILED;
  }
  if (file >= 0) close(file);
  if (!done) throw std::bad_alloc();
}

}  // namespace opsmith::vast
