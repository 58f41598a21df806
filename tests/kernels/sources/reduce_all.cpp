// A choice of strings as an enum, and a list whose elements fix sizes and dtype.
#include <opsmith/kernel.h>

#include "reduce_all.h"

template <typename T>
void reduce_all(const opsmith::Context&, const kernels_test::reduce_all_args<T>& a) {
  using Mode = kernels_test::reduce_all_mode;
  for (int64_t i = 0; i < a.N * a.C; ++i) {
    T result = a.mode == Mode::max ? a.xs[0][i] : T(0);
    for (int64_t k = 0; k < a.xs.size(); ++k) {
      const T x = a.xs[k][i];
      switch (a.mode) {
        case Mode::sum:
        case Mode::mean_:
          result += x;
          break;
        case Mode::max:
          result = std::max(result, x);
          break;
      }
    }
    if (a.mode == Mode::mean_) result /= static_cast<T>(a.xs.size());
    if (a.scaling == kernels_test::reduce_all_scaling::by_2) result *= 2;
    a.out[i] = result;
  }
}
OPSMITH_KERNEL(kernels_test, reduce_all, cpu, float, double)
