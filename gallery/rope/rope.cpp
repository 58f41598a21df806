#include "rope.h"

#include <opsmith/kernel.h>

#include <algorithm>
#include <cstdint>

#include "../vectors.h"
#include "rope_backward.h"

namespace {

using gallery::kTile, gallery::narrow, gallery::Sum, gallery::Tile, gallery::widen;

// Rotates each pair by its angle, or back by `direction` -1.
template <typename T, typename Args>
void rotate(const opsmith::Context& ctx, const Args& a, const T* x, Sum<T> direction) {
  const int64_t pairs = a.D, columns = 2 * pairs;
  if (a.H * pairs == 0) return;
  const int64_t tokens = a.positions.numel();
  const int64_t grain = (1 << 13) / (a.H * columns) + 1;
  ctx.parallel_for(0, tokens, grain, [&](int64_t begin, int64_t end) {
    Tile<Sum<T>> cos, sin, both, a_out, b_out;
    for (int64_t token = begin; token < end; ++token) {
      const int64_t angles = a.positions[token] * pairs;
      // Of an interleaved head, a tile has as many elements as of two halves.
      const int64_t step = a.interleaved ? kTile / 2 : kTile;
      for (int64_t pair = 0; pair < pairs; pair += step) {
        const int64_t count = std::min(pairs - pair, step);
        widen(a.cos.data() + angles + pair, count, cos.items);
        widen(a.sin.data() + angles + pair, count, sin.items);
        for (int64_t i = 0; i < count; ++i) sin[i] *= direction;
        for (int64_t head = 0; head < a.H; ++head) {
          const int64_t row = (token * a.H + head) * columns;
          if (a.interleaved) {
            const int64_t at = row + 2 * pair;
            widen(x + at, 2 * count, both.items);
            for (int64_t i = 0; i < count; ++i) {
              const Sum<T> left = both[2 * i], right = both[2 * i + 1];
              a_out[2 * i] = left * cos[i] - right * sin[i];
              a_out[2 * i + 1] = right * cos[i] + left * sin[i];
            }
            narrow(a_out.items, 2 * count, a.out.data() + at);
          } else {
            const int64_t at = row + pair;
            widen(x + at, count, a_out.items);
            widen(x + at + pairs, count, b_out.items);
            for (int64_t i = 0; i < count; ++i) {
              const Sum<T> left = a_out[i], right = b_out[i];
              a_out[i] = left * cos[i] - right * sin[i];
              b_out[i] = right * cos[i] + left * sin[i];
            }
            narrow(a_out.items, count, a.out.data() + at);
            narrow(b_out.items, count, a.out.data() + at + pairs);
          }
        }
      }
    }
  });
}

}  // namespace

template <typename T>
void rope(const opsmith::Context& ctx, const llm::rope_args<T>& a) {
  rotate<T>(ctx, a, a.x.data(), Sum<T>(1));
}
OPSMITH_KERNEL(llm, rope, cpu, float, double, opsmith::half, opsmith::bfloat16)

template <typename T>
void rope_backward(const opsmith::Context& ctx, const llm::rope_backward_args<T>& a) {
  rotate<T>(ctx, a, a.grad.data(), Sum<T>(-1));
}
OPSMITH_KERNEL(llm, rope_backward, cpu, float, double, opsmith::half, opsmith::bfloat16)
