// In place of CANN's header: what a vector core uses of it, <kernel_operator.h> has.
#pragma once

#include <kernel_operator.h>

namespace matmul {}
