#include "rms_norm.h"

#include <opsmith/kernel.h>

#include <cmath>
#include <cstdint>
#include <span>
#include <type_traits>

#include "rms_norm_backward.h"

namespace {

// Sums are taken in float for half types, in double for others: the squares of a row of float may
// be beyond float's range where the result is not.
template <typename T>
using Sum = std::conditional_t<sizeof(T) < sizeof(float), float, double>;

// A row's factor. One thread takes the sum, in the order of the columns, whatever the other rows.
template <typename T>
Sum<T> scale_of(const T* row, int64_t columns, double eps) {
  Sum<T> squares = 0;
  for (int64_t c = 0; c < columns; ++c) {
    const auto value = static_cast<Sum<T>>(row[c]);
    squares += value * value;
  }
  return 1 / std::sqrt(squares / static_cast<Sum<T>>(columns) + static_cast<Sum<T>>(eps));
}

constexpr int64_t at_least = 1 << 12;  // elements that are worth a thread

}  // namespace

template <typename T>
void rms_norm(const opsmith::Context& ctx, const norms::rms_norm_args<T>& a) {
  if (a.C == 0) return;
  ctx.parallel_for(0, a.x.numel() / a.C, at_least / a.C + 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* x = a.x.data() + row * a.C;
      T* out = a.out.data() + row * a.C;
      const Sum<T> scale = scale_of(x, a.C, a.eps);
      for (int64_t c = 0; c < a.C; ++c) {
        const auto weight = static_cast<Sum<T>>(a.weight[c]);
        out[c] = static_cast<T>(static_cast<Sum<T>>(x[c]) * scale * weight);
      }
    }
  });
}
OPSMITH_KERNEL(norms, rms_norm, cpu, float, double, opsmith::half, opsmith::bfloat16)

template <typename T>
void rms_norm_backward(const opsmith::Context& ctx, const norms::rms_norm_backward_args<T>& a) {
  if (a.C == 0) return;
  const int64_t rows = a.x.numel() / a.C;
  const std::span<Sum<T>> scales = ctx.scratch<Sum<T>>(rows);
  ctx.parallel_for(0, rows, at_least / a.C + 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * a.C;
      const Sum<T> scale = scales[row] = scale_of(a.x.data() + at, a.C, a.eps);
      Sum<T> inner = 0;
      const auto scaled = [&](int64_t c) {
        return static_cast<Sum<T>>(a.grad[at + c]) * static_cast<Sum<T>>(a.weight[c]);
      };
      for (int64_t c = 0; c < a.C; ++c) inner += scaled(c) * static_cast<Sum<T>>(a.x[at + c]);
      const Sum<T> slope = scale * scale * scale * (inner / static_cast<Sum<T>>(a.C));
      for (int64_t c = 0; c < a.C; ++c) {
        a.out0[at + c] =
            static_cast<T>(scale * scaled(c) - slope * static_cast<Sum<T>>(a.x[at + c]));
      }
    }
  });
  ctx.parallel_for(0, a.C, at_least / (rows + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      Sum<T> sum = 0;
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t at = row * a.C + c;
        sum += static_cast<Sum<T>>(a.grad[at]) * static_cast<Sum<T>>(a.x[at]) * scales[row];
      }
      a.out1[c] = static_cast<T>(sum);
    }
  });
}
OPSMITH_KERNEL(norms, rms_norm_backward, cpu, float, double, opsmith::half, opsmith::bfloat16)
