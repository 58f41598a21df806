#include "my_add.h"

#include <opsmith/kernel.h>

#include <cstdint>
#include <type_traits>

template <typename T>
void my_add(const opsmith::Context& ctx, const tutorial::my_add_args<T>& args) {
  // In float for the half types, where 2a alone may be out of range.
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const T *a = args.a.data(), *b = args.b.data();
  T* out = args.out.data();
  ctx.parallel_for(0, args.out.numel(), 1 << 14, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      out[i] = static_cast<T>(2 * static_cast<Wide>(a[i]) + static_cast<Wide>(b[i]));
    }
  });
}
OPSMITH_KERNEL(tutorial, my_add, cpu, float, double, opsmith::half, opsmith::bfloat16)
