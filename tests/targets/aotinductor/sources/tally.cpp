#include <opsmith/kernel.h>

#include "Tally_forward.h"

template <typename T>
void Tally_forward(const opsmith::Context&, const aoti_test::Tally_forward_args<T>& a) {
  *a.new_count.data() = a.count + 1;
  for (int64_t i = 0; i < a.N; ++i) a.out[i] = a.x[i] * static_cast<T>(a.count + 1);
}
OPSMITH_KERNEL(aoti_test, Tally_forward, cpu, float, double)
