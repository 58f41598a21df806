// Two inner loops, each with `opsmith::Vec` and with the vector extensions of GCC and clang.
#include <opsmith/kernel.h>
#include <opsmith/vec.h>

#include "loops.h"

#include <cstdint>
#include <cstring>

namespace {

constexpr int lanes = opsmith::lanes<float>;

// A sum of products, whose last numbers fill no vector.
float dot_by_opsmith(const float* x, const float* y, int64_t count) {
  using V = opsmith::Vec<float, lanes>;
  V sum = {}, other = {};
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    sum += V::load(x + i) * V::load(y + i);
    other += V::load(x + i + lanes) * V::load(y + i + lanes);
  }
  float total = (sum + other).sum();
  for (; i < count; ++i) total += x[i] * y[i];
  return total;
}

typedef float Lanes __attribute__((vector_size(lanes * sizeof(float))));

Lanes load(const float* from) {
  Lanes result;
  std::memcpy(&result, from, sizeof result);
  return result;
}

float dot_by_hand(const float* x, const float* y, int64_t count) {
  Lanes sum = {}, other = {};
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    sum += load(x + i) * load(y + i);
    other += load(x + i + lanes) * load(y + i + lanes);
  }
  sum += other;
  float total = 0;
  for (int lane = 0; lane < lanes; ++lane) total += sum[lane];
  for (; i < count; ++i) total += x[i] * y[i];
  return total;
}

// Four rows and two vectors of a product of matrices, which stay in registers.
void tile_by_opsmith(const float* x, const float* y, float* out, int64_t inner, int64_t columns) {
  using V = opsmith::Vec<float, lanes>;
  V sums[4][2] = {};
  for (int64_t k = 0; k < inner; ++k) {
    const V left = V::load(y + k * columns), right = V::load(y + k * columns + lanes);
    for (int row = 0; row < 4; ++row) {
      sums[row][0] += x[row * inner + k] * left;
      sums[row][1] += x[row * inner + k] * right;
    }
  }
  for (int row = 0; row < 4; ++row) {
    for (int half = 0; half < 2; ++half) sums[row][half].store(out + row * columns + half * lanes);
  }
}

void tile_by_hand(const float* x, const float* y, float* out, int64_t inner, int64_t columns) {
  Lanes sums[4][2] = {};
  for (int64_t k = 0; k < inner; ++k) {
    const Lanes left = load(y + k * columns), right = load(y + k * columns + lanes);
    for (int row = 0; row < 4; ++row) {
      sums[row][0] += x[row * inner + k] * left;
      sums[row][1] += x[row * inner + k] * right;
    }
  }
  for (int row = 0; row < 4; ++row) {
    for (int half = 0; half < 2; ++half) {
      std::memcpy(out + row * columns + half * lanes, &sums[row][half], sizeof(Lanes));
    }
  }
}

template <typename Tile>
void product(const opsmith_bench::loops_args& a, Tile tile) {
  for (int64_t row = 0; row + 4 <= a.M; row += 4) {
    for (int64_t column = 0; column + 2 * lanes <= a.N; column += 2 * lanes) {
      tile(a.x.data() + row * a.K, a.y.data() + column, a.out.data() + row * a.N + column, a.K,
           a.N);
    }
  }
}

template <typename Dot>
void dots(const opsmith_bench::loops_args& a, Dot dot) {
  for (int64_t row = 0; row < a.M; ++row) {
    a.out.data()[row] = dot(a.x.data() + row * a.K, a.x.data(), a.K);
  }
}

}  // namespace

void loops(const opsmith::Context&, const opsmith_bench::loops_args& a) {
  if (a.products && a.by_hand) {
    product(a, tile_by_hand);
  } else if (a.products) {
    product(a, tile_by_opsmith);
  } else if (a.by_hand) {
    dots(a, dot_by_hand);
  } else {
    dots(a, dot_by_opsmith);
  }
}
OPSMITH_KERNEL(opsmith_bench, loops, cpu)
