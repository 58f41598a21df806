#include <opsmith/kernel.h>

#ifndef NAME
#define NAME bounded
#define HEADER "bounded.h"
#else
#define HEADER "unbounded.h"
#endif
#include HEADER

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define REGISTER(name) OPSMITH_KERNEL(narrow, name, cpu)

void NAME(const opsmith::Context& ctx, const narrow::JOIN(NAME, _args) & a) {
  ctx.parallel_for(0, a.N * a.C, 1024, [&](int begin, int end) {
    for (int i = begin; i < end; ++i) a.out[i] = 2 * a.x[i];
  });
}
REGISTER(NAME)
