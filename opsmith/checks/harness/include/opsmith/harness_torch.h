// Calls a kernel that has registered itself with PyTorch, in a process without Python and CUDA.
#pragma once

#include <opsmith/harness_runtime.h>

#include <string>

namespace opsmith::harness {

struct TorchOperator {
  const char* ns;
  const char* name;
  const char* schema;  // without the namespace
  // Has a function of the source's Python module become the kernel; null without such a module.
  // Returns the reason why it cannot, or null.
  const char* (*become_kernel)(const char* ns, const char* name);
  // The error of a block of the source's; null without blocks.
  const char* (*problem)();
};

// Defines the operator, before the source registers its kernel.
__attribute__((visibility("default"))) void define_operator(const TorchOperator& op);

// Calls the operator with tensors on the device; returns the message of a call that failed.
__attribute__((visibility("default"))) std::string call_operator(Runtime& runtime,
                                                                 const TorchOperator& op);

}  // namespace opsmith::harness
