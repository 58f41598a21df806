// Matrices that a warp holds and multiplies together (nvcuda::wmma), as CUDA documents them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace nvcuda::wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32;
}

template <typename Use, int m, int n, int k, typename T, typename Layout = void>
struct fragment {
  static constexpr bool is_a = std::is_same_v<Use, matrix_a>, is_b = std::is_same_v<Use, matrix_b>;
  static constexpr int rows = is_b ? k : m, columns = is_a ? k : n;
  static constexpr int num_elements = rows * columns / warpSize;
  static constexpr int num_storage_elements = num_elements;
  using element_type = T;
  using storage_element_type = std::conditional_t<std::is_same_v<T, precision::tf32>, float, T>;

  static constexpr bool is_usual = (m == 16 && n == 16 && k == 16) ||
                                   (m == 32 && n == 8 && k == 16) || (m == 8 && n == 32 && k == 16);
  static constexpr bool is_of_tf32 = m == 16 && n == 16 && k == 8;
  static constexpr bool is_of_double = m == 8 && n == 8 && k == 4;
  template <typename... Types>
  static constexpr bool is_one = (std::is_same_v<T, Types> || ...);
  static_assert(std::is_same_v<Use, accumulator>
                    ? (is_usual && is_one<float, __half, int>) || (is_of_tf32 && is_one<float>) ||
                          (is_of_double && is_one<double>)
                    : (is_usual && is_one<__half, __nv_bfloat16, signed char, unsigned char>) ||
                          (is_of_tf32 && is_one<precision::tf32>) ||
                          (is_of_double && is_one<double>),
                "nvcuda::wmma has no fragment of this shape and type");
  static_assert(std::is_void_v<Layout> == (!is_a && !is_b),
                "matrix_a and matrix_b have a layout, and an accumulator has none");

  storage_element_type x[num_elements];

  // A fragment begins with undefined values. These are NaN, or -1.
  fragment() { std::memset(static_cast<void*>(x), 0xff, sizeof x); }
};

inline float __float_to_tf32(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
  return std::bit_cast<float>((finite ? bits + 0x1000u : bits) & 0xffffe000u);
}

}  // namespace nvcuda::wmma

namespace emulated {

// Waits for the warp, whose lanes have to call with the same arguments.
inline void meet_at_matrix(const void* data, unsigned stride, const char* what, Place place) {
  const uint64_t own = reinterpret_cast<uint64_t>(data) ^ (uint64_t{stride} << 48);
  const Lanes lanes = with_every_lane(own, what, place);
  for (const uint64_t value : lanes.values) {
    if (value != own) {
      fail("the lanes of a warp load or store a matrix with different addresses or strides", place);
    }
  }
}

inline void check_matrix(const void* data, unsigned stride, size_t element, Place place) {
  if (reinterpret_cast<uint64_t>(data) % 32 != 0) {
    fail("a matrix is loaded or stored at an address that is not a multiple of 32", place);
  }
  if (stride * element % 16 != 0) {
    fail("a matrix is loaded or stored with a stride that is not a multiple of 16 bytes", place);
  }
}

// The number of an element in its matrix by rows. Which lane holds which element is undocumented,
// so it is not the lane here that writes the element in usual kernels.
constexpr unsigned number_in_matrix(unsigned element, unsigned lane) {
  return element * warp_size + (lane * 5 + element * 7 + 3) % warp_size;
}

template <typename Fragment>
constexpr uint64_t place_in_matrix(int element, unsigned lane, unsigned stride, bool by_rows) {
  const unsigned at = number_in_matrix(element, lane);
  const uint64_t row = at / Fragment::columns, column = at % Fragment::columns;
  return by_rows ? row * stride + column : column * stride + row;
}

// Collects the whole matrix from the lanes, by rows.
template <typename Fragment, typename T>
__attribute__((noinline)) OPSMITH_UNWATCHED void collect_matrix(const Fragment& part, T* matrix,
                                                                Place place) {
  T parts[warp_size][Fragment::num_elements];
  collect(part.x, parts, "wmma::mma_sync", place);
  for (int element = 0; element < Fragment::num_elements; ++element) {
    for (unsigned lane = 0; lane < warp_size; ++lane) {
      matrix[number_in_matrix(element, lane)] = parts[lane][element];
    }
  }
}

// A number as tensor cores take it: of tf32, the last 13 bits are ignored.
template <typename T, typename Sum, typename Storage>
Sum factor(const Storage& value) {
  if constexpr (std::is_same_v<T, nvcuda::wmma::precision::tf32>) {
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0xffffe000u);
  } else {
    return static_cast<Sum>(value);
  }
}

template <typename D, typename A, typename B, typename C>
__attribute__((noinline)) OPSMITH_UNWATCHED void multiply(D& d, const A& a, const B& b, const C& c,
                                                          bool saturate, Place place) {
  using Storage = typename A::storage_element_type;
  using Sum =
      std::conditional_t<std::is_integral_v<Storage>, long long,
                         std::conditional_t<std::is_same_v<Storage, double>, double, float>>;
  constexpr int inner = A::columns;
  Storage left[A::rows * inner], right[inner * B::columns];
  collect_matrix(a, left, place);
  collect_matrix(b, right, place);
  for (int element = 0; element < D::num_elements; ++element) {
    const unsigned at = number_in_matrix(element, lane_number());
    const unsigned row = at / D::columns, column = at % D::columns;
    Sum sum = static_cast<Sum>(c.x[element]);
    for (int i = 0; i < inner; ++i) {
      sum += factor<typename A::element_type, Sum>(left[row * inner + i]) *
             factor<typename B::element_type, Sum>(right[i * B::columns + column]);
    }
    if constexpr (std::is_integral_v<Storage>) {
      if (saturate) sum = sum > INT_MAX ? INT_MAX : sum < INT_MIN ? INT_MIN : sum;
      d.x[element] = static_cast<int>(static_cast<unsigned>(sum));
    } else {
      d.x[element] = static_cast<typename D::storage_element_type>(sum);
    }
  }
}

}  // namespace emulated

namespace nvcuda::wmma {

using opsmith_place = emulated::Place;

template <typename Use, int m, int n, int k, typename T, typename Layout, typename Value>
void fill_fragment(fragment<Use, m, n, k, T, Layout>& part, const Value& value) {
  using Storage = typename fragment<Use, m, n, k, T, Layout>::storage_element_type;
  for (auto& one : part.x) one = static_cast<Storage>(value);
}

// Inlined, so that the place of an access is the user's line.
template <typename Fragment>
__forceinline__ void opsmith_load(Fragment& part,
                                  const typename Fragment::storage_element_type* data,
                                  unsigned stride, bool by_rows, opsmith_place place) {
  using namespace emulated;
  check_matrix(data, stride, sizeof *data, place);
  for (int i = 0; i < Fragment::num_elements; ++i) {
    part.x[i] = data[place_in_matrix<Fragment>(i, lane_number(), stride, by_rows)];
  }
  // Only then, since waiting would order the lanes, which CUDA does not promise.
  meet_at_matrix(data, stride, "wmma::load_matrix_sync", place);
}

template <typename Use, int m, int n, int k, typename T, typename Layout>
__forceinline__ void load_matrix_sync(
    fragment<Use, m, n, k, T, Layout>& part,
    const typename fragment<Use, m, n, k, T, Layout>::storage_element_type* data, unsigned stride,
    opsmith_place place = emulated::here()) {
  static_assert(!std::is_void_v<Layout>, "an accumulator is loaded with a layout");
  opsmith_load(part, data, stride, std::is_same_v<Layout, row_major>, place);
}

template <int m, int n, int k, typename T>
__forceinline__ void load_matrix_sync(fragment<accumulator, m, n, k, T>& part, const T* data,
                                      unsigned stride, layout_t layout,
                                      opsmith_place place = emulated::here()) {
  opsmith_load(part, data, stride, layout == mem_row_major, place);
}

template <int m, int n, int k, typename T>
__forceinline__ void store_matrix_sync(T* data, const fragment<accumulator, m, n, k, T>& part,
                                       unsigned stride, layout_t layout,
                                       opsmith_place place = emulated::here()) {
  using namespace emulated;
  using Fragment = fragment<accumulator, m, n, k, T>;
  check_matrix(data, stride, sizeof *data, place);
  meet_at_matrix(data, stride, "wmma::store_matrix_sync", place);
  for (int i = 0; i < Fragment::num_elements; ++i) {
    data[place_in_matrix<Fragment>(i, lane_number(), stride, layout == mem_row_major)] = part.x[i];
  }
}

template <int m, int n, int k, typename D, typename A, typename LayoutA, typename B,
          typename LayoutB, typename C>
void mma_sync(fragment<accumulator, m, n, k, D>& d,
              const fragment<matrix_a, m, n, k, A, LayoutA>& a,
              const fragment<matrix_b, m, n, k, B, LayoutB>& b,
              const fragment<accumulator, m, n, k, C>& c, bool saturate = false,
              opsmith_place place = emulated::here()) {
  static_assert(std::is_same_v<A, B>, "wmma multiplies matrices of one type");
  emulated::multiply(d, a, b, c, saturate, place);
}

}  // namespace nvcuda::wmma
