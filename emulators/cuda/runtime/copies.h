// Asynchronous copies to shared memory (cp.async).
#pragma once

#include "watch.h"

namespace emulated {

// Checks an access beside copies that are under way. Each copy is made as late as possible: when
// its thread waits for it.
void check_beside_copies(const Access& one);

}  // namespace emulated
