// In place of CANN's header, whose names <kernel_operator.h> has.
#pragma once

#include <kernel_operator.h>
