// In place of the CUDA toolkit's header.
#pragma once

#include <emulated/cuda.h>
#include <emulated/half.h>

OPSMITH_SHORT_FLOAT(__half, __half2, __half_raw, __half2_raw, to_half, from_half)
// As with CUDA's own: PyTorch's numbers of 16 bits convert to these, and have operators too. In an
// exact build the class brings them.
#if !defined(__CUDA_NO_HALF_OPERATORS__) && !defined(OPSMITH_EXACT)
OPSMITH_SHORT_OPERATORS(__half)
#endif

using half = __half;
using half2 = __half2;

OPSMITH_SHORT_CONVERSIONS(__half, __half2, half)
#ifndef OPSMITH_EXACT
inline unsigned short __half_as_ushort(__half x) { return x.bits; }
inline short __half_as_short(__half x) { return static_cast<short>(x.bits); }
inline __half __ushort_as_half(unsigned short x) { return __half_raw{x}; }
inline __half __short_as_half(short x) { return __half_raw{static_cast<unsigned short>(x)}; }
#endif
