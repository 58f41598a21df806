// Compiles a kernel that was written for float and double with numbers that are never rounded.
//
// opsmith's exact build includes before a kernel's source: this file, the headers in angle brackets
// that the source includes, the operator's header, types.h, from which on `float` and `double` are
// other types, the headers of an emulation, and bits.h.
#pragma once

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cfloat>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "element.h"

#include <opsmith/kernel.h>
