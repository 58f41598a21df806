// In place of the CUDA toolkit's header.
#pragma once

#include <opsmith/emulated/thrust/algorithms.h>
