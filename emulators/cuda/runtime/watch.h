// The functions that the compiler's hooks call.
#pragma once

#include "memory.h"

namespace emulated {

enum class Does { reads, writes, updates };  // an update reads and writes

// An access that the running CUDA thread or the host is about to make.
struct Access {
  char* address;
  uint64_t bytes;
  Does does;
  Kind kind;
  const void* place;

  bool writes() const { return does != Does::reads; }
};

// Checks an access; returns whether it is one of a CUDA thread to watched memory.
bool access(const Access& one);

// The same through `volatile`, which is an access that may meet others, and orders nothing.
void volatile_access(void* address, uint64_t bytes, bool write, const void* place);

}  // namespace emulated
