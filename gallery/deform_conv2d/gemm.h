// The inner loop of a blocked matrix product: rows of one operand broadcast against panels of the
// other, sums held in registers. It needs no BLAS, so that the same kernel runs inside any runtime.
//
// The algorithm is that of Goto and van de Geijn, "Anatomy of high-performance matrix
// multiplication" (2008), with the roles of the two operands as the callers here need them: the
// right one is packed into panels of `Tile<T>::width` columns, the left one is read in place.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

namespace gemm {

#if defined(__AVX512F__)
inline constexpr int vector_bytes = 64;
inline constexpr int vector_registers = 32;
#elif defined(__AVX__)
inline constexpr int vector_bytes = 32;
inline constexpr int vector_registers = 16;
#elif defined(__aarch64__)
inline constexpr int vector_bytes = 16;
inline constexpr int vector_registers = 32;
#else
inline constexpr int vector_bytes = 16;
inline constexpr int vector_registers = 16;
#endif

template <typename T>
struct Vector {
  static constexpr int lanes = vector_bytes / static_cast<int>(sizeof(T));
  typedef T type __attribute__((vector_size(vector_bytes)));

  static type load(const T* from) {
    type value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  static void store(T* to, type value) { std::memcpy(to, &value, sizeof value); }
  // Minus zero, not plus: only that changes no value, so only that costs no instruction.
  static type fill(T value) { return value - type{}; }
  // The first `count` lanes; the others are zero.
  static type first(type value, int64_t count) {
    return []<int... lane>(type from, T stop, std::integer_sequence<int, lane...>) {
      return type{static_cast<T>(lane)...} < fill(stop) ? from : type{};
    }(value, static_cast<T>(count), std::make_integer_sequence<int, lanes>{});
  }
  static T sum(type value) { return fold<lanes / 2>(value); }

 private:
  // Adds the upper half of the lanes to the lower one, and so on: a chain of additions would wait
  // for each. The indices are constants, which is what makes this a few shuffles.
  template <int half>
  static T fold(type value) {
    if constexpr (half == 0) {
      return value[0];
    } else {
      return fold<half / 2>(value + swapped<half>(value, std::make_integer_sequence<int, lanes>{}));
    }
  }
  template <int half, int... lane>
  static type swapped(type value, std::integer_sequence<int, lane...>) {
#if defined(__clang__)
    return __builtin_shufflevector(value, value, (lane ^ half)...);
#else
    using Index = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
    typedef Index indices __attribute__((vector_size(vector_bytes)));
    return __builtin_shuffle(value, indices{(lane ^ half)...});
#endif
  }
};

// The shape of the block of results that stays in registers: `rows` x `width`. Two vectors wide,
// as high as leaves registers for one row of the panel and one broadcast value.
template <typename T>
struct Tile {
  static constexpr int rows = vector_registers == 32 ? (vector_bytes == 64 ? 14 : 12) : 6;
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
  typename V::type sum[rows][vectors];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) sum[r][v] = typename V::type{};
  }
  for (int64_t k = 0; k < depth; ++k) {
    typename V::type right[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) right[v] = V::load(panel + v * V::lanes);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const typename V::type left = V::fill(a[r * row_stride]);
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
      V::store(to, accumulate ? V::load(to) + sum[r][v] : sum[r][v]);
    }
  }
}

}  // namespace gemm
