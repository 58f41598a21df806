// Every size, and the dtype, come from elements of lists; the choice of strings from an attribute.
#include <opsmith/kernel.h>

#include "weighted_sum.h"

template <typename T>
void weighted_sum(const opsmith::Context&, const ort_test::weighted_sum_args<T>& a) {
  const bool mean = a.mode == ort_test::weighted_sum_mode::mean;
  for (int64_t i = 0; i < a.N * a.M; ++i) {
    T sum = 0;
    for (int64_t k = 0; k < a.xs.size(); ++k) sum += a.xs[k][i];
    a.out[i] = mean ? sum / static_cast<T>(a.xs.size()) : sum;
  }
}
OPSMITH_KERNEL(ort_test, weighted_sum, cpu, float, double)
