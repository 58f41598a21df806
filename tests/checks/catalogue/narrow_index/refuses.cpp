#include <opsmith/kernel.h>

#include "refuses.h"

void refuses(const opsmith::Context& ctx, const narrow::refuses_args& a) {
  if (a.N * a.C > INT32_MAX) ctx.fail("at most ", INT32_MAX, " elements");
  const int count = static_cast<int>(a.N * a.C);
  for (int i = 0; i < count; ++i) a.out[i] = 2 * a.x[i];
}
OPSMITH_KERNEL(narrow, refuses, cpu)
