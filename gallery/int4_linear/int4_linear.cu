#include "int4_linear.h"

#include <opsmith/cuda.h>

#include <cstdint>

#include "../packs.cuh"

namespace {

using gallery::Sum;

constexpr int kWarp = 32, kWarps = 4;
constexpr int kEach = 4;  // rows of x that a warp takes

// A warp takes one row of weights and some rows of x; its lanes divide the bytes.
template <typename T>
__global__ void multiply(const T* x, const uint8_t* packed, const T* scales, int64_t rows,
                         int64_t count, int64_t groups, int64_t group, int64_t items, T* out) {
  using S = Sum<T>;
  const int64_t item = blockIdx.x * int64_t{kWarps} + threadIdx.x / kWarp;
  if (item >= items) return;
  const int64_t n = item % count, first = item / count * kEach, columns = groups * group;
  const int lane = threadIdx.x % kWarp;
  S sums[kEach] = {};
  for (int64_t k = 2 * lane; k < columns; k += 2 * kWarp) {
    const int bits = packed[(n * columns + k) / 2];
    // A group may end within a byte.
    const S low = static_cast<S>((bits & 15) - 8) * static_cast<S>(scales[n * groups + k / group]);
    const S high =
        static_cast<S>((bits >> 4) - 8) * static_cast<S>(scales[n * groups + (k + 1) / group]);
    for (int i = 0; i < kEach; ++i) {
      if (first + i >= rows) break;
      const T* row = x + (first + i) * columns;
      sums[i] += static_cast<S>(row[k]) * low + static_cast<S>(row[k + 1]) * high;
    }
  }
  for (int i = 0; i < kEach; ++i) {
    if (first + i >= rows) break;
    for (int step = kWarp / 2; step > 0; step /= 2) {
      sums[i] += __shfl_xor_sync(0xffffffffu, sums[i], step);
    }
    if (lane == 0) out[(first + i) * count + n] = static_cast<T>(sums[i]);
  }
}

}  // namespace

template <typename T>
void int4_linear(const opsmith::Context& ctx, const llm::int4_linear_args<T>& a) {
  const int64_t items = a.N * ((a.B + kEach - 1) / kEach);
  if (items == 0) return;
  opsmith::launch(ctx, multiply<T>, opsmith::blocks_for(items, kWarps), kWarp * kWarps, 0,
                  a.x.data(), a.packed.data(), a.scales.data(), a.B, a.N, a.R, a.G, items,
                  a.out.data());
}
OPSMITH_KERNEL(llm, int4_linear, cuda, float, double, opsmith::half, opsmith::bfloat16)
