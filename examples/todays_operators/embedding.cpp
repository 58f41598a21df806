#include "embedding.h"

#include <opsmith/kernel.h>

#include <algorithm>

#include "embedding_backward.h"

template <typename T, typename Ids>
void embedding(const opsmith::Context& ctx, const today::embedding_args<T, Ids>& a) {
  ctx.parallel_for(0, a.ids.numel(), 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::copy_n(a.weight.data() + a.ids[i] * a.D, a.D, a.out.data() + i * a.D);
    }
  });
}
OPSMITH_KERNEL(today, embedding, cpu, (float, double), (int32_t, int64_t))

template <typename T, typename Ids>
void embedding_backward(const opsmith::Context& ctx,
                        const today::embedding_backward_args<T, Ids>& a) {
  // Each thread owns some columns, so that the order of the sums is the same for any number.
  ctx.parallel_for(0, a.D, 8, [&](int64_t begin, int64_t end) {
    for (int64_t v = 0; v < a.V; ++v) {
      for (int64_t d = begin; d < end; ++d) a.out(v, d) = 0;
    }
    for (int64_t i = 0; i < a.ids.numel(); ++i) {
      for (int64_t d = begin; d < end; ++d) a.out(a.ids[i], d) += a.grad[i * a.D + d];
    }
  });
}
OPSMITH_KERNEL(today, embedding_backward, cpu, (float, double), (int32_t, int64_t))
