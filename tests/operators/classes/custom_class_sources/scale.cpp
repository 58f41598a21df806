#include "Scale_forward.h"

#include <opsmith/kernel.h>

template <typename T>
void Scale_forward(const opsmith::Context&, const class_samples::Scale_forward_args<T>& a) {
  for (int64_t n = 0; n < a.N; ++n) {
    for (int64_t c = 0; c < a.channels; ++c) {
      const float product = static_cast<float>(a.x(n, c)) * static_cast<float>(a.weight[c]);
      a.out(n, c) = static_cast<T>(product * static_cast<float>(a.factor));
    }
  }
}
OPSMITH_KERNEL(class_samples, Scale_forward, cpu, float, opsmith::half)
