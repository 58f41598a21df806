// The interface between a host, such as the extension of a Python module, and an operator's
// adapter. Neither depends on the other's types: the adapter does not use Python, so it serves
// every version.
#pragma once

#include <opsmith/detail/arguments.h>

namespace opsmith::hosted {

// The kinds of arguments, in the order of `KINDS` in targets/python/package/_calls.py.
enum class Kind { tensor, tensors, integer, floating, boolean, text, integers, floats, booleans };

// The outcome of a call.
enum Status : int32_t {
  done,
  refused,        // an argument does not fit the declaration
  failed,         // the kernel failed
  out_of_memory,  // no memory for a copy of an argument
};

// The functions of the host that a call may use, without holding an interpreter's lock.
struct Host {
  void* self;

  // Records the message of a call that failed.
  void (*fail)(void* self, const char* message, uint64_t size);

  // Allocates the result at `position`; returns null if that fails. The tensor stays valid during
  // the call.
  const DLTensor* (*allocate)(void* self, int32_t position, DLDataType dtype, int32_t ndim,
                              const int64_t* sizes);

  // The same as in opsmith_context.
  void (*parallel_for)(void* self, int64_t begin, int64_t end, int64_t grain,
                       void (*body)(int64_t, int64_t, void*), void* state);
  int32_t (*num_threads)(void* self);
};

// The function that an operator's library exports. Returns a Status.
using Entry = int32_t (*)(const opsmith_argument*, const Host*);

}  // namespace opsmith::hosted
