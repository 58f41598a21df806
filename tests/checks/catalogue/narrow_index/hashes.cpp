#include <opsmith/kernel.h>

#include "hashes.h"

// Numbers of 32 bits that wrap, and are no indices.
void hashes(const opsmith::Context& ctx, const narrow::hashes_args& a) {
  ctx.parallel_for(0, a.N * a.C, 1024, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      auto hash = static_cast<uint32_t>(i) * 2654435761u;
      hash ^= static_cast<uint32_t>(static_cast<int32_t>(hash) >> 16);
      a.out[i] = hash == 7u ? 2 * a.x[i] : a.x[i] + a.x[i];
    }
  });
}
OPSMITH_KERNEL(narrow, hashes, cpu)
