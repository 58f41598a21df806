#include <opsmith/kernel.h>

#include "everything.h"

template <typename T>
void everything(const opsmith::Context& ctx, const ort_test::everything_args<T>& a) {
  if (a.mode == "fail") ctx.fail("asked to fail with k=", a.k);
  if (a.mode == "throw") throw std::runtime_error("thrown in the middle");
  if (a.mode == "throw in a thread") {
    // The last piece: another thread's, or the only one's where there is no other.
    ctx.parallel_for(0, 1000, 1, [](int64_t, int64_t end) {
      if (end == 1000) throw std::runtime_error("thrown in a thread");
    });
  }
  double more = 0;
  if (a.more) {
    for (int64_t i = 0; i < a.more.size(); ++i) {
      const auto item = a.more[i];
      for (int64_t j = 0; j < item.numel(); ++j) more += static_cast<double>(item[j]);
    }
  }
  for (int64_t n = 0; n < a.N; ++n) {
    for (int64_t m = 0; m < a.M; ++m) {
      double value = static_cast<double>(a.x(n, m)) * a.scale +
                     static_cast<double>(a.on ? a.k : -a.k) + a.weights[0] - a.weights[1] + a.shift;
      if (a.bias) value += static_cast<double>(a.bias[m]);
      for (int64_t i = 0; i < a.others.size(); ++i) value += static_cast<double>(a.others[i](n, m));
      value += more;
      a.out0(n, m) = static_cast<T>(value * a.ratio.value_or(1));
    }
  }
  int64_t number = 100 * a.extra.value_or(0) + 1000 * static_cast<int64_t>(a.mode.size());
  for (int64_t size : a.sizes) number += size;
  for (uint8_t flag : a.flags) number += 10 * flag;
  number += 10000 * static_cast<int64_t>(a.label.value_or("").size());
  number += 1000000 * (a.more ? 1 + a.more.size() : 0);
  for (int64_t n = 0; n < a.N; ++n) a.out1[n] = (a.index ? a.index[n] : n) + number;
}
OPSMITH_KERNEL(ort_test, everything, cpu, float, double)
