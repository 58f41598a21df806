// The inner loop of a blocked matrix product: rows of one operand broadcast against panels of the
// other, sums held in registers. It needs no BLAS, so that the same kernel runs inside any runtime.
//
// The algorithm is that of Goto and van de Geijn, "Anatomy of high-performance matrix
// multiplication" (2008), with the roles of the two operands as the callers here need them: the
// right one is packed into panels of `Tile<T>::width` columns, the left one is read in place.
#pragma once

#include <opsmith/vec.h>

#include <cstdint>

namespace gemm {

#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr int vector_registers = 32;
#else
inline constexpr int vector_registers = 16;
#endif
template <typename T>
using Vector = opsmith::Vec<T, opsmith::lanes<T>>;

// The shape of the block of results that stays in registers: `rows` x `width`. Two vectors wide,
// as high as leaves registers for one row of the panel and one broadcast value.
template <typename T>
struct Tile {
  static constexpr int rows = vector_registers == 32 ? (opsmith::vector_bytes == 64 ? 14 : 12) : 6;
  static constexpr int vectors = 2;
  static constexpr int width = vectors * Vector<T>::lanes;
};

constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// c[r][j] (+)= sum over k < depth of a[r * row_stride + k * depth_stride] * panel[k][j]
// for r < Tile<T>::rows and j < vectors * lanes.
//
// The strides of `a` are template arguments: as constants they become displacements of one
// pointer, where fourteen pointers would not fit the integer registers. Never inlined: what the
// caller holds would compete for the registers that the sums need.
template <typename T, int vectors, int64_t row_stride, int64_t depth_stride>
__attribute__((noinline)) void multiply(int64_t depth, const T* a, const T* panel, T* c,
                                        int64_t c_stride, bool accumulate) {
  using V = Vector<T>;
  constexpr int rows = Tile<T>::rows;
  V sum[rows][vectors];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) sum[r][v] = V{};
  }
  for (int64_t k = 0; k < depth; ++k) {
    V right[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) right[v] = V::load(panel + v * V::lanes);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const V left = V::fill(a[r * row_stride]);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sum[r][v] += left * right[v];
    }
    a += depth_stride;
    panel += vectors * V::lanes;
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      T* to = c + r * c_stride + v * V::lanes;
      // Added to what is there only now: sums of sums lose less than one long one.
      (accumulate ? V::load(to) + sum[r][v] : sum[r][v]).store(to);
    }
  }
}

}  // namespace gemm
