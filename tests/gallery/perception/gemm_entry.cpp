// Lets test_deform_conv2d.py call what gemm.h has, on its own.
#include "gemm.h"

namespace {

// Rows of `a` are `row_stride` apart as in a tile of samples, or side by side as in a band.
template <typename T, int vectors, bool band>
void product(int64_t depth, const T* a, const T* panel, T* c, bool accumulate) {
  constexpr int64_t row_stride = band ? 1 : 40, depth_stride = band ? gemm::Tile<T>::rows : 1;
  gemm::multiply<T, vectors, row_stride, depth_stride>(
      depth, a, panel, c, vectors * gemm::Vector<T>::lanes, accumulate);
}

}  // namespace

#define ENTRIES(type)                                                                           \
  extern "C" int rows_##type() { return gemm::Tile<type>::rows; }                               \
  extern "C" int lanes_##type() { return gemm::Vector<type>::lanes; }                           \
  extern "C" void product_##type(int vectors, bool band, int64_t depth, const type* a,          \
                                 const type* panel, type* c, bool accumulate) {                 \
    const auto call = vectors == 1 ? (band ? product<type, 1, true> : product<type, 1, false>)  \
                                   : (band ? product<type, 2, true> : product<type, 2, false>); \
    call(depth, a, panel, c, accumulate);                                                       \
  }                                                                                             \
  extern "C" type sum_of_first_##type(const type* values, int64_t count) {                      \
    using V = gemm::Vector<type>;                                                               \
    return V::load(values).first(count).sum();                                                  \
  }
ENTRIES(float)
ENTRIES(double)
