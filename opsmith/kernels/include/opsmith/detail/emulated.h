// Included before the first line of an emulated kernel, and precompiled: everything that nvcc
// offers without an include, and what every kernel includes.
#pragma once

#include <emulated/cuda.h>
#include <opsmith/kernel.h>
