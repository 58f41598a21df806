// What stands between a Python module (native/) and the library of an operator, neither of which
// sees the other's types: a library knows nothing of Python, so it serves every version of it.
#pragma once

#include <opsmith/detail/arguments.h>

namespace opsmith::python {

// What became of a call.
enum Status : int32_t {
  done,
  refused,        // an argument does not fit the declaration
  failed,         // the kernel failed
  out_of_memory,  // there is none left, for a copy of an argument
};

// What a call may ask of the module. Nobody holds the interpreter's lock meanwhile.
struct Host {
  void* self;

  // Records the message of a call that is not done.
  void (*fail)(void* self, const char* message, uint64_t size);

  // Allocates the result at `position`; null where that cannot be. What it returns stays valid for
  // the call.
  const DLTensor* (*allocate)(void* self, int32_t position, DLDataType dtype, int32_t ndim,
                              const int64_t* sizes);

  // As in opsmith_context.
  void (*parallel_for)(void* self, int64_t begin, int64_t end, int64_t grain,
                       void (*body)(int64_t, int64_t, void*), void* state);
  int32_t (*num_threads)(void* self);
};

// What the library of an operator exports: returns a Status.
using Entry = int32_t (*)(const opsmith_argument*, const Host*);

}  // namespace opsmith::python
