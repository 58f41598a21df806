// In place of the CUDA toolkit's header.
#pragma once

#include <emulated/cuda.h>
#include <emulated/half.h>

OPSMITH_SHORT_FLOAT(__nv_bfloat16, __nv_bfloat162, __nv_bfloat16_raw, __nv_bfloat162_raw,
                    to_bfloat16, from_bfloat16)
// As with CUDA's own: PyTorch's numbers of 16 bits convert to these, and have operators too.
#if !defined(__CUDA_NO_BFLOAT16_OPERATORS__) || defined(OPSMITH_EXACT)
OPSMITH_SHORT_OPERATORS(__nv_bfloat16)
#endif

using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

inline __nv_bfloat16 __float2bfloat16(float x) { return x; }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return x; }
inline __nv_bfloat16 __double2bfloat16(double x) { return x; }
inline float __bfloat162float(__nv_bfloat16 x) { return x; }
inline __nv_bfloat162 __float2bfloat162_rn(float x) { return {x, x}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {x, y}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 a) { return {a.x, a.y}; }
inline float2 __bfloat1622float2(__nv_bfloat162 a) { return {a.x, a.y}; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return {x, x}; }
inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 a) { return a.x; }
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 a) { return a.y; }
#ifndef OPSMITH_EXACT
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) { return __nv_bfloat16_raw{x}; }
#endif
