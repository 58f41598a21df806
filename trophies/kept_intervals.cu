// Suppression of intervals that meet an earlier one which is kept: a thread decides for its
// interval by what the threads of the earlier ones have written so far.
#include "kept_intervals.h"

#include <opsmith/cuda.h>

__global__ void suppress(const float* ends, int* kept, int count) {
  const int i = threadIdx.x;
  const auto meet = [=](int a, int b) {
    return ends[2 * a] < ends[2 * b + 1] && ends[2 * b] < ends[2 * a + 1];
  };
  if (i < count) kept[i] = 1;
  __syncthreads();
#ifdef MENDED
  for (int earlier = 0; earlier < count; ++earlier) {
    if (earlier < i && i < count && kept[earlier] == 1 && meet(earlier, i)) kept[i] = 0;
    __syncthreads();
  }
#else
  if (i >= count) return;
  for (int earlier = 0; earlier < i; ++earlier) {
    if (kept[earlier] == 1 && meet(earlier, i)) {  // FAULT
      kept[i] = 0;                                 // FAULT
      return;
    }
  }
#endif
}

void kept_intervals(const opsmith::Context& ctx, const trophies::kept_intervals_args& a) {
  if (a.N == 0) return;
  if (a.N > 1024) ctx.fail("at most 1024 intervals, and there are ", a.N);
  suppress<<<1, static_cast<unsigned>(a.N), 0, opsmith::cuda_stream(ctx)>>>(
      a.ends.data(), a.out.data(), static_cast<int>(a.N));
}
OPSMITH_KERNEL(trophies, kept_intervals, cuda)
