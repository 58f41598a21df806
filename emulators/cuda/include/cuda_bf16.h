// In place of the CUDA toolkit's header.
#pragma once

#include <emulated/cuda.h>
#include <emulated/half.h>

OPSMITH_SHORT_FLOAT(__nv_bfloat16, __nv_bfloat162, __nv_bfloat16_raw, __nv_bfloat162_raw,
                    to_bfloat16, from_bfloat16)
// As with CUDA's own: PyTorch's numbers of 16 bits convert to these, and have operators too.
#if !defined(__CUDA_NO_BFLOAT16_OPERATORS__) && !defined(OPSMITH_EXACT)
OPSMITH_SHORT_OPERATORS(__nv_bfloat16)
#endif

using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

OPSMITH_SHORT_CONVERSIONS(__nv_bfloat16, __nv_bfloat162, bfloat16)
#ifndef OPSMITH_EXACT
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) { return __nv_bfloat16_raw{x}; }
#endif
