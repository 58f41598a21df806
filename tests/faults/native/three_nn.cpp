#include "fault.h"

#include <cmath>

// NaN is further than everything.
template <typename T>
bool is_nearer(T one, T other) {
  return one < other || (std::isnan(other) && !std::isnan(one));
}

// The three nearest points, as mmcv's three_nn finds them. A compiler that contracts sums of
// products makes one of two equal distances shorter; std::fma does so with every compiler.
template <typename T>
void NAME(const opsmith::Context& ctx, const faults::FAULT_JOIN(NAME, _args) < T > &a) {
  ctx.parallel_for(0, a.N, 64, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      T best[3];
      int32_t index[3];
      for (int64_t m = 0; m < a.M; ++m) {
        const T x = a.unknown[3 * n] - a.known[3 * m];
        const T y = a.unknown[3 * n + 1] - a.known[3 * m + 1];
        const T z = a.unknown[3 * n + 2] - a.known[3 * m + 2];
        const T distance = std::fma(z, z, std::fma(y, y, x * x));
        int place = m < 3 ? static_cast<int>(m) : 3;
        while (place > 0 && is_nearer(distance, best[place - 1])) --place;
        // What was second stays where a nearer one than all comes.
        for (int k = 2; k > place; --k) {
          if (TWIN(place == 0 && k == 1, false)) continue;
          best[k] = best[k - 1];
          index[k] = index[k - 1];
        }
        if (place < 3) best[place] = distance, index[place] = static_cast<int32_t>(m);
      }
      for (int k = 0; k < 3; ++k) {
        a.out0[3 * n + k] = std::sqrt(best[k]);
        a.out1[3 * n + k] = index[k];
      }
    }
  });
}
FAULT_REGISTER(NAME, float, double)
