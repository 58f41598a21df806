#include "paged_attention.h"

#include <opsmith/kernel.h>

#include <cmath>
#include <limits>
#include <vector>

template <typename T>
void paged_attention(const opsmith::Context& ctx, const today::paged_attention_args<T>& a) {
  const T scale = static_cast<T>(a.scale);
  ctx.parallel_for(0, a.S * a.K * a.G, 1, [&](int64_t begin, int64_t end) {
    std::vector<T> weights(a.M * a.L);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t s = i / (a.K * a.G), head = i % (a.K * a.G), k = head / a.G;
      const int64_t length = a.lengths[s];
      T most = -std::numeric_limits<T>::infinity(), sum = 0;
      for (int64_t t = 0; t < length; ++t) {
        T score = 0;
        for (int64_t d = 0; d < a.D; ++d) {
          score += a.query(s, head, d) * a.keys(a.pages(s, t / a.L), t % a.L, k, d);
        }
        weights[t] = score * scale;
        most = !(weights[t] <= most) ? weights[t] : most;  // NaN too
      }
      for (int64_t t = 0; t < length; ++t) sum += weights[t] = std::exp(weights[t] - most);
      for (int64_t d = 0; d < a.D; ++d) {
        T total = 0;
        for (int64_t t = 0; t < length; ++t) {
          total += weights[t] / sum * a.values(a.pages(s, t / a.L), t % a.L, k, d);
        }
        a.out(s, head, d) = total;
      }
    }
  });
}
OPSMITH_KERNEL(today, paged_attention, cpu, float, double)
