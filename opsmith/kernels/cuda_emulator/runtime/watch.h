// What the hooks of the compiler call.
#pragma once

#include <cstdint>

namespace opsmith::emulated {

// An access that is about to happen, by the running CUDA thread or by the host.
void access(void* address, uint64_t bytes, bool write, bool atomic, const void* place);

}  // namespace opsmith::emulated
