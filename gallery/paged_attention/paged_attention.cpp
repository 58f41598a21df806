#include "paged_attention.h"

#include <opsmith/kernel.h>

#include <algorithm>
#include <cstdint>
#include <span>

#include "../vectors.h"

using gallery::Sum;

template <typename T>
void paged_attention(const opsmith::Context& ctx, const llm::paged_attention_args<T>& a) {
  using S = Sum<T>;
  const S scale = static_cast<S>(a.scale);
  // A thread takes the heads of queries that share a head of keys, so that a key is read once.
  ctx.parallel_for(0, a.S * a.K, 1, [&](int64_t begin, int64_t end) {
    const std::span<S> scores = ctx.scratch<S>(a.M * a.L * a.G), sums = ctx.scratch<S>(a.D);
    for (int64_t item = begin; item < end; ++item) {
      const int64_t s = item / a.K, k = item % a.K, length = a.lengths[s];
      const auto at = [&](int64_t t) {
        return ((a.pages(s, t / a.L) * a.L + t % a.L) * a.K + k) * a.D;
      };
      const int64_t first = item * a.G * a.D;  // of the group's queries
      for (int64_t t = 0; t < length; ++t) {
        const T* key = a.keys.data() + at(t);
        for (int64_t g = 0; g < a.G; ++g) {
          const T* query = a.query.data() + first + g * a.D;
          scores[g * length + t] = gallery::sum_of_products<S>(a.D, query, key) * scale;
        }
      }
      for (int64_t g = 0; g < a.G; ++g) {
        S* weights = scores.data() + g * length;
        S most = weights[0];
        for (int64_t t = 1; t < length; ++t) {
          most = !(weights[t] <= most) ? weights[t] : most;  // NaN too
        }
        for (int64_t t = 0; t < length; ++t) weights[t] = gallery::exp_of(weights[t] - most);
        const S total = gallery::sum_of_products<S>(length, weights);
        std::fill(sums.begin(), sums.end(), S(0));
        for (int64_t t = 0; t < length; ++t) {
          const S weight = weights[t] / total;
          gallery::transform<S>(
              a.D, sums.data(), [weight](auto sum, auto value) { return sum + weight * value; },
              sums.data(), a.values.data() + at(t));
        }
        gallery::narrow(sums.data(), a.D, a.out.data() + first + g * a.D);
      }
    }
  });
}
OPSMITH_KERNEL(llm, paged_attention, cpu, float, double, opsmith::half, opsmith::bfloat16)
