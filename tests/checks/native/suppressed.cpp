#include "suppressed.h"
#include <opsmith/kernel.h>
#include <algorithm>
#include <numeric>
#include <vector>

void suppressed(const opsmith::Context&, const kinds::suppressed_args& a) {
  std::vector<int64_t> order(a.N), kept;
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t i, int64_t j) { return a.scores[i] > a.scores[j]; });
  const auto low = [&](int64_t i) { return std::min(a.spans(i, 0), a.spans(i, 1)); };
  const auto high = [&](int64_t i) { return std::max(a.spans(i, 0), a.spans(i, 1)); };
  for (const int64_t one : order) {
    const bool free = std::none_of(kept.begin(), kept.end(), [&](int64_t other) {
      const int64_t both =
          std::max<int64_t>(0, std::min(high(one), high(other)) - std::max(low(one), low(other)));
      const int64_t all = high(one) - low(one) + high(other) - low(other) - both;
      return double(both) > a.share * double(all);
    });
    if (free) kept.push_back(one);
  }
  const auto out = a.out.allocate({int64_t(kept.size())});
  std::copy(kept.begin(), kept.end(), out.data());
}
OPSMITH_KERNEL(kinds, suppressed, cpu)
