// Passes the arguments of a call to the function that compares them with the declaration
// (`opsmith_arguments__<namespace>__<name>`), for kernels that do not compare them themselves.
#pragma once

#include <opsmith/abi.h>

namespace opsmith {

// One argument. `items` points at `count` DLTensors, int64_t, double, uint8_t (for bools) or
// characters; a single value is one item.
struct opsmith_argument {
  int64_t count;  // -1: None was passed
  const void* items;
};

// Returns 0, or another number after the context has received the message.
using opsmith_check_arguments = int32_t (*)(const opsmith_argument*, const opsmith_context*);

namespace detail {

template <typename T>
const T* items(const opsmith_argument& argument) {
  return argument.count < 0 ? nullptr : static_cast<const T*>(argument.items);
}

}  // namespace detail
}  // namespace opsmith
