#include "pick.h"

#include <opsmith/kernel.h>

template <typename T>
void pick(const opsmith::Context&, const ort_cuda::pick_args<T>& a) {
  for (int64_t k = 0; k < a.K; ++k) {
    for (int64_t m = 0; m < a.M; ++m) {
      T sum = a.x(a.index[k], m);
      for (int64_t j = 0; j < a.others.size(); ++j) sum += a.others[j](a.index[k], m);
      a.out(k, m) = sum * static_cast<T>(a.scale);
    }
  }
}
OPSMITH_KERNEL(ort_cuda, pick, cpu, float, double, opsmith::half)
