// The kernels of the operators that are fuzzed.
#include <opsmith/kernel.h>

#include "add_to.h"
#include "blend.h"
#include "patch.h"
#include "peak.h"
#include "positive.h"
#include "scale.h"
#include "spread.h"
#include "take.h"
#include "total.h"

template <typename T>
void scale(const opsmith::Context&, const fuzz::scale_args<T>& a) {
  for (int64_t i = 0; i < a.x.numel(); ++i) {
    a.out[i] = a.x[i] * static_cast<T>(a.flip ? -a.k : a.k);
  }
}
OPSMITH_KERNEL(fuzz, scale, cpu, float, double)

template <typename T>
void take(const opsmith::Context&, const fuzz::take_args<T>& a) {
  for (int64_t p = 0; p < a.P; ++p) {
    for (int64_t c = 0; c < a.C; ++c) a.out(p, c) = a.x(a.rows[p], c);
  }
}
OPSMITH_KERNEL(fuzz, take, cpu, float, double)

template <typename T>
void blend(const opsmith::Context&, const fuzz::blend_args<T>& a) {
  for (int64_t n = 0; n < a.N; ++n) {
    for (int64_t m = 0; m < a.M; ++m) {
      T value = a.x(n, m) * static_cast<T>(a.weight.value_or(1));
      if (a.bias) value += a.bias[m];
      a.out(n, m) = value;
    }
  }
}
OPSMITH_KERNEL(fuzz, blend, cpu, float, double)

template <typename T>
void total(const opsmith::Context&, const fuzz::total_args<T>& a) {
  const T divisor = a.mode == fuzz::total_mode::mean ? static_cast<T>(a.xs.size()) : T(1);
  for (int64_t i = 0; i < a.out.numel(); ++i) {
    T sum = 0;
    for (int64_t n = 0; n < a.xs.size(); ++n) sum += a.xs[n][i];
    a.out[i] = sum / divisor;
  }
}
OPSMITH_KERNEL(fuzz, total, cpu, float, double)

template <typename T>
void add_to(const opsmith::Context&, const fuzz::add_to_args<T>& a) {
  for (int64_t n = 0; n < a.N; ++n) {
    a.out[n] = 0;
    for (int64_t m = 0; m < a.M; ++m) {
      a.out[n] += a.x(n, m);
      a.total[m] += a.x(n, m) * static_cast<T>(a.factor);
    }
  }
}
OPSMITH_KERNEL(fuzz, add_to, cpu, float, double)

template <typename T>
void patch(const opsmith::Context&, const fuzz::patch_args<T>& a) {
  for (int64_t i = 0; i < a.size[0]; ++i) {
    for (int64_t j = 0; j < a.size[1]; ++j) {
      a.out(i, j) = i < a.H && j < a.W ? a.x(i, j) : T(0);
    }
  }
}
OPSMITH_KERNEL(fuzz, patch, cpu, float, double)

template <typename T>
void positive(const opsmith::Context&, const fuzz::positive_args<T>& a) {
  int64_t count = 0;
  for (int64_t n = 0; n < a.N; ++n) count += a.x[n] > 0;
  const auto out = a.out.allocate({count});
  int64_t k = 0;
  for (int64_t n = 0; n < a.N; ++n) {
    if (a.x[n] > 0) out[k++] = a.x[n];
  }
}
OPSMITH_KERNEL(fuzz, positive, cpu, float, double)

template <typename T>
void peak(const opsmith::Context&, const fuzz::peak_args<T>& a) {
  for (int64_t n = 0; n < a.N; ++n) {
    T sum = 0;
    int64_t marked = 0;
    for (int64_t m = 0; m < a.M; ++m) {
      sum += a.mask(n, m) ? a.x(n, m) : T(0);
      marked += a.mask(n, m) ? 1 : 0;
    }
    a.out0[n] = sum;
    a.out1[n] = marked;
  }
}
OPSMITH_KERNEL(fuzz, peak, cpu, float, double)

template <typename T>
void spread(const opsmith::Context&, const fuzz::spread_args<T>& a) {
  double sum = a.shift;
  for (double weight : a.weights) sum += weight;
  // As the reference rounds it: in double precision, a sum beyond T would not overflow.
  const T factor = static_cast<T>(sum);
  for (int64_t i = 0; i < a.N; ++i) a.out[i] = a.x[i] * factor;
}
OPSMITH_KERNEL(fuzz, spread, cpu, float, double)
