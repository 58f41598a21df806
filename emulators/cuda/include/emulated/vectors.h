// CUDA's vector types, with CUDA's alignments.
#pragma once

#include <emulated/runtime.h>

#define OPSMITH_VECTORS(name, type, two, four)                                   \
  struct name##1 { type x; };                                                    \
  struct alignas(two) name##2 { type x, y; };                                    \
  struct name##3 { type x, y, z; };                                              \
  struct alignas(four) name##4 { type x, y, z, w; };                             \
  constexpr name##1 make_##name##1(type x) { return {x}; }                       \
  constexpr name##2 make_##name##2(type x, type y) { return {x, y}; }            \
  constexpr name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; } \
  constexpr name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
OPSMITH_VECTORS(char, signed char, 2, 4)
OPSMITH_VECTORS(uchar, unsigned char, 2, 4)
OPSMITH_VECTORS(short, short, 4, 8)
OPSMITH_VECTORS(ushort, unsigned short, 4, 8)
OPSMITH_VECTORS(int, int, 8, 16)
OPSMITH_VECTORS(long, long, 2 * sizeof(long), 16)
OPSMITH_VECTORS(ulong, unsigned long, 2 * sizeof(long), 16)
OPSMITH_VECTORS(longlong, long long, 16, 16)
OPSMITH_VECTORS(ulonglong, unsigned long long, 16, 16)
OPSMITH_VECTORS(float, float, 8, 16)
OPSMITH_VECTORS(double, double, 16, 16)
#undef OPSMITH_VECTORS

// uint3 is declared along with threadIdx.
struct uint1 {
  unsigned int x;
};
struct alignas(8) uint2 {
  unsigned int x, y;
};
struct alignas(16) uint4 {
  unsigned int x, y, z, w;
};
constexpr uint1 make_uint1(unsigned int x) { return {x}; }
constexpr uint2 make_uint2(unsigned int x, unsigned int y) { return {x, y}; }
constexpr uint3 make_uint3(unsigned int x, unsigned int y, unsigned int z) { return {x, y, z}; }
constexpr uint4 make_uint4(unsigned int x, unsigned int y, unsigned int z, unsigned int w) {
  return {x, y, z, w};
}
