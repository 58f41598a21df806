#include "moe_gating.h"

#include <opsmith/kernel.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "../vectors.h"

template <typename T>
void moe_gating(const opsmith::Context& ctx, const llm::moe_gating_args<T>& a) {
  using S = gallery::Sum<T>;
  const auto& weights = a.out0;
  const auto &experts = a.out1, &offsets = a.out2, &choices = a.out3;
  ctx.parallel_for(0, a.T, (1 << 13) / a.E + 1, [&](int64_t begin, int64_t end) {
    std::vector<S> best(a.k);
    for (int64_t t = begin; t < end; ++t) {
      const T* logits = a.logits.data() + t * a.E;
      int32_t* chosen = experts.data() + t * a.k;
      int64_t count = 0;
      for (int64_t e = 0; e < a.E; ++e) {
        const auto value = static_cast<S>(logits[e]);
        if (count == a.k && !(value > best[a.k - 1])) continue;
        // The last one goes, where there are k; equal ones stay in order.
        int64_t place = count < a.k ? count++ : a.k - 1;
        for (; place > 0 && value > best[place - 1]; --place) {
          best[place] = best[place - 1];
          chosen[place] = chosen[place - 1];
        }
        best[place] = value;
        chosen[place] = static_cast<int32_t>(e);
      }
      const S largest = best[0];
      S sum = 0;
      for (S& value : best) {
        value = opsmith::exp(value - largest);
        sum += value;
      }
      for (int64_t i = 0; i < a.k; ++i) weights[t * a.k + i] = static_cast<T>(best[i] / sum);
    }
  });
  // A counting sort, which keeps the order of the tokens of one expert.
  for (int64_t e = 0; e <= a.E; ++e) offsets[e] = 0;
  for (int64_t i = 0; i < a.T * a.k; ++i) ++offsets[experts[i] + 1];
  std::partial_sum(offsets.data(), offsets.data() + a.E + 1, offsets.data());
  std::vector<int32_t> next(offsets.data(), offsets.data() + a.E);
  for (int64_t i = 0; i < a.T * a.k; ++i) choices[next[experts[i]]++] = static_cast<int32_t>(i);
}
OPSMITH_KERNEL(llm, moe_gating, cpu, float, double, opsmith::half, opsmith::bfloat16)
