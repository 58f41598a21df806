#include "everything.h"

#include <opsmith/kernel.h>

#include <numeric>

template <typename T>
void everything(const opsmith::Context&, const aoti_test::everything_args<T>& a) {
  double added = static_cast<double>(a.steps) + a.last + static_cast<double>(a.mode.size());
  added += std::accumulate(a.weights.begin(), a.weights.end(), 0.0);
  for (const auto flag : a.flags) added += flag ? 1 : 0;
  added += static_cast<double>(a.window[1]) + a.shift.value_or(0);
  added += static_cast<double>(a.times.value_or(0)) + (a.flip.value_or(false) ? 0.25 : 0);
  if (a.label) added += static_cast<double>(a.label->size());
  if (a.pads) {
    for (const int64_t pad : *a.pads) added += static_cast<double>(pad);
  }
  if (a.gains) added += (*a.gains)[0] + (*a.gains)[1];
  for (int64_t n = 0; n < a.N; ++n) {
    double sum = 0;
    for (int64_t c = 0; c < a.C; ++c) {
      const int64_t i = n * a.C + c;
      sum += static_cast<double>(a.x[i]);
      double value = static_cast<double>(a.x[i]) * a.scale + added;
      if (a.bias) value += static_cast<double>(a.bias[c]);
      for (int64_t k = 0; k < a.parts.size(); ++k) value += static_cast<double>(a.parts[k][i]);
      for (int64_t k = 0; k < a.more.size(); ++k) value += static_cast<double>(a.more[k][i]);
      a.out0[i] = static_cast<T>(a.negate ? -value : value);
    }
    for (int64_t w = 0; w < a.window[0]; ++w) a.out1[n * a.window[0] + w] = static_cast<T>(sum);
  }
}
OPSMITH_KERNEL(aoti_test, everything, cpu, float, double)
