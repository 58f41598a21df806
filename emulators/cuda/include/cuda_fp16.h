// In place of the CUDA toolkit's header.
#pragma once

#include <emulated/cuda.h>
#include <emulated/half.h>

OPSMITH_SHORT_FLOAT(__half, __half2, __half_raw, __half2_raw, to_half, from_half)
// As with CUDA's own: PyTorch's numbers of 16 bits convert to these, and have operators too.
#if !defined(__CUDA_NO_HALF_OPERATORS__) || defined(OPSMITH_EXACT)
OPSMITH_SHORT_OPERATORS(__half)
#endif

using half = __half;
using half2 = __half2;

inline __half __float2half(float x) { return x; }
inline __half __float2half_rn(float x) { return x; }
inline __half __double2half(double x) { return x; }
inline float __half2float(__half x) { return x; }
inline __half2 __float2half2_rn(float x) { return {x, x}; }
inline __half2 __floats2half2_rn(float x, float y) { return {x, y}; }
inline __half2 __float22half2_rn(float2 a) { return {a.x, a.y}; }
inline float2 __half22float2(__half2 a) { return {a.x, a.y}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __half2 __half2half2(__half x) { return {x, x}; }
inline __half2 make_half2(__half x, __half y) { return {x, y}; }
inline __half __low2half(__half2 a) { return a.x; }
inline __half __high2half(__half2 a) { return a.y; }
inline __half2 __low2half2(__half2 a) { return {a.x, a.x}; }
inline __half2 __high2half2(__half2 a) { return {a.y, a.y}; }
inline __half2 __lowhigh2highlow(__half2 a) { return {a.y, a.x}; }
inline __half __int2half_rn(int x) { return x; }
inline __half __uint2half_rn(unsigned x) { return x; }
inline int __half2int_rn(__half x) { return __float2int_rn(x); }
inline int __half2int_rz(__half x) { return __float2int_rz(x); }
#ifndef OPSMITH_EXACT
inline unsigned short __half_as_ushort(__half x) { return x.bits; }
inline short __half_as_short(__half x) { return static_cast<short>(x.bits); }
inline __half __ushort_as_half(unsigned short x) { return __half_raw{x}; }
inline __half __short_as_half(short x) { return __half_raw{static_cast<unsigned short>(x)}; }
#endif
