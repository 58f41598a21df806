#include "pick.h"

#include <opsmith/kernel.h>

#include <algorithm>

template <typename T>
void pick(const opsmith::Context&, const aoti_test::pick_args<T>& a) {
  for (int64_t r = 0; r < a.R; ++r)
    std::copy_n(a.x.data() + a.rows[r] * a.C, a.C, a.out.data() + r * a.C);
}
OPSMITH_KERNEL(aoti_test, pick, cpu, float, double)
