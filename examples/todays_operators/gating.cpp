#include "gating.h"

#include <opsmith/kernel.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

template <typename T>
void gating(const opsmith::Context& ctx, const today::gating_args<T>& a) {
  const auto& weights = a.out0;
  const auto &experts = a.out1, &offsets = a.out2, &choices = a.out3;
  ctx.parallel_for(0, a.T, 16, [&](int64_t begin, int64_t end) {
    std::vector<int32_t> order(a.E);
    for (int64_t t = begin; t < end; ++t) {
      std::iota(order.begin(), order.end(), 0);
      std::partial_sort(order.begin(), order.begin() + a.k, order.end(), [&](int32_t i, int32_t j) {
        return a.logits(t, i) > a.logits(t, j) || (a.logits(t, i) == a.logits(t, j) && i < j);
      });
      T sum = 0;
      for (int64_t i = 0; i < a.k; ++i) {
        experts(t, i) = order[i];
        weights(t, i) = std::exp(a.logits(t, order[i]) - a.logits(t, order[0]));
        sum += weights(t, i);
      }
      for (int64_t i = 0; i < a.k; ++i) weights(t, i) /= sum;
    }
  });
  // A counting sort, which keeps the order of the tokens of one expert.
  for (int64_t e = 0; e <= a.E; ++e) offsets[e] = 0;
  for (int64_t i = 0; i < a.T * a.k; ++i) ++offsets[experts[i] + 1];
  std::partial_sum(offsets.data(), offsets.data() + a.E + 1, offsets.data());
  std::vector<int32_t> next(offsets.data(), offsets.data() + a.E);
  for (int64_t i = 0; i < a.T * a.k; ++i) choices[next[experts[i]]++] = static_cast<int32_t>(i);
}
OPSMITH_KERNEL(today, gating, cpu, float, double)
