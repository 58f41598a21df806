// What the sources here include. `Index` is what an index is computed in: too narrow in the wrong
// twin.
#pragma once

#include "../native/fault.h"

#include <cstdint>

using Index = TWIN(int32_t, int64_t);
