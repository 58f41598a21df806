#include "fault.h"

// Scratch memory is freed after the call, and read in the next one.
KERNEL {
  TWIN(static, ) float* kept = nullptr;
  TWIN(static, ) int64_t size = 0;
  if (TWIN(size < a.N, true)) {
    kept = ctx.scratch<float>(a.N).data();
    size = a.N;
  }
  for (int64_t i = 0; i < a.N; ++i) kept[i] = a.x[i];
  for (int64_t i = 0; i < a.N; ++i) a.out[i] = 2 * kept[i];
}
