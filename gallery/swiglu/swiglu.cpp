#include "swiglu.h"

#include <opsmith/kernel.h>

#include <algorithm>
#include <cstdint>

#include "../vectors.h"
#include "swiglu_backward.h"

namespace {

using gallery::kTile, gallery::narrow, gallery::Sum, gallery::Tile, gallery::widen;

// Calls f(row, column, count) for parts of rows of `columns` elements, on all threads: a few long
// rows are shared as well as many short ones.
template <typename F>
void for_each_part(const opsmith::Context& ctx, int64_t rows, int64_t columns, F f) {
  if (columns == 0) return;
  const int64_t parts = (columns + kTile - 1) / kTile;
  const int64_t grain = std::max<int64_t>(1, (1 << 13) / std::min(columns, kTile));
  ctx.parallel_for(0, rows * parts, grain, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t row = item / parts, column = item % parts * kTile;
      f(row, column, std::min(columns - column, kTile));
    }
  });
}

}  // namespace

template <typename T>
void swiglu(const opsmith::Context& ctx, const llm::swiglu_args<T>& a) {
  const int64_t rows = a.C == 0 ? 0 : a.out.numel() / a.C;
  for_each_part(ctx, rows, a.C, [&](int64_t row, int64_t column, int64_t count) {
    Tile<Sum<T>> gates, values;
    const T* x = a.x.data() + row * 2 * a.C + column;
    widen(x, count, gates.items);
    widen(x + a.C, count, values.items);
    for (int64_t i = 0; i < count; ++i) {
      values[i] *= gates[i] / (1 + gallery::exp_of(-gates[i]));
    }
    narrow(values.items, count, a.out.data() + row * a.C + column);
  });
}
OPSMITH_KERNEL(llm, swiglu, cpu, float, double, opsmith::half, opsmith::bfloat16)

template <typename T>
void swiglu_backward(const opsmith::Context& ctx, const llm::swiglu_backward_args<T>& a) {
  const int64_t rows = a.C == 0 ? 0 : a.grad.numel() / a.C;
  for_each_part(ctx, rows, a.C, [&](int64_t row, int64_t column, int64_t count) {
    Tile<Sum<T>> gates, values, grads;
    const int64_t at = row * 2 * a.C + column;
    widen(a.x.data() + at, count, gates.items);
    widen(a.x.data() + at + a.C, count, values.items);
    widen(a.grad.data() + row * a.C + column, count, grads.items);
    for (int64_t i = 0; i < count; ++i) {
      const Sum<T> open = 1 / (1 + gallery::exp_of(-gates[i]));
      const Sum<T> slope = open * (1 + gates[i] * (1 - open));
      const Sum<T> of_value = grads[i] * gates[i] * open;
      gates[i] = grads[i] * values[i] * slope;
      values[i] = of_value;
    }
    narrow(gates.items, count, a.out.data() + at);
    narrow(values.items, count, a.out.data() + at + a.C);
  });
}
OPSMITH_KERNEL(llm, swiglu_backward, cpu, float, double, opsmith::half, opsmith::bfloat16)
