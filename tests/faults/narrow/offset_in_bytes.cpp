#include "narrow.h"

// The index is wide, and the offset in bytes is not.
KERNEL {
  const auto* from = reinterpret_cast<const char*>(&a.x[0]);
  ctx.parallel_for(0, a.N * a.C, 1024, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto offset = static_cast<Index>(i * int64_t{sizeof(float)});
      a.out[i] = 2 * *reinterpret_cast<const float*>(from + offset);
    }
  });
}
