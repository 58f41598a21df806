// The functions that the compiler's hooks call.
#pragma once

#include <cstdint>

namespace opsmith::emulated {

// Checks an access that the running CUDA thread or the host is about to make.
void access(void* address, uint64_t bytes, bool write, bool atomic, const void* place);

}  // namespace opsmith::emulated
