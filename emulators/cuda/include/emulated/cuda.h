// Declares everything that nvcc offers without an include. opsmith includes this header first when
// a C++ compiler compiles a CUDA kernel for the CPU.
#pragma once

// C++17, which nvcc compiles by default, has no `lerp`, so kernels define their own. In C++20 the
// standard library's would be ambiguous with it.
#define lerp lerp_of_cxx20
#include <math.h>

#include <cmath>
#undef lerp

#define OPSMITH_CUDA_ON_CPU 1
// Set as in nvcc's compilation for the host; __CUDA_ARCH__ stays undefined.
#define __CUDACC__ 1
#define __NVCC__ 1
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define CUDART_VERSION 13000
#define CUDA_VERSION 13000

// opsmith has the preprocessor keep these words, and takes them out when it has read them.
#ifndef OPSMITH_KEEPS_WORDS_OF_CUDA
#define __host__
#define __device__
#define __global__
#define __constant__
#define __managed__
#define __launch_bounds__(...)
#endif
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __maxnreg__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_assume(condition)
#define CUDART_CB

#include <emulated/device.h>
#include <emulated/host.h>
#include <emulated/math.h>
#ifdef OPSMITH_WHOLE_PROGRAM
#include <emulated/host_program.h>
// The memory of the device is closed to the host, whose own accesses need not be watched.
#define OPSMITH_OF_HOST OPSMITH_UNWATCHED
#else
#define OPSMITH_OF_HOST
#endif
#include <emulated/vectors.h>

#include <cassert>
#include <cstdio>
