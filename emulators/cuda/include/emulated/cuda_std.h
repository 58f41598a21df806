// libcu++'s part of the standard library. Kernels run on the host here, so the host's own is used.
// What waits or orders memory (atomic, barrier, latch, semaphore) is left out: it would not be
// seen.
#pragma once

#include <emulated/cuda.h>

// The headers of libcu++ have minimum and maximum with them.
#include <algorithm>

namespace cuda::std {
using namespace ::std;
}
