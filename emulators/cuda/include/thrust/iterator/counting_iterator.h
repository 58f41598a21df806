// In place of the CUDA toolkit's header.
#pragma once

#include <emulated/thrust/iterators.h>
