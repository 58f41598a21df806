// Farthest points: each round chooses the one that is farthest from those before. The threads read
// the index of the last choice from the slot that the first thread's next candidate goes to.
#include "chosen_points.h"

#include <opsmith/cuda.h>

#include <cmath>

constexpr int kThreads = 64;

__global__ void choose(const float* x, float* nearest, int* out, int points, int rounds) {
  __shared__ float farthest[kThreads];
  __shared__ int at[kThreads];
  const int thread = threadIdx.x;
  for (int i = thread; i < points; i += kThreads) nearest[i] = INFINITY;
  if (thread == 0) out[0] = 0;
  int chosen = 0;
  for (int round = 1; round < rounds; ++round) {
    float most = -1;
    int best = 0;
    for (int i = thread; i < points; i += kThreads) {
      nearest[i] = fminf(nearest[i], fabsf(x[i] - x[chosen]));
      if (nearest[i] > most) most = nearest[i], best = i;
    }
    farthest[thread] = most;
    at[thread] = best;  // FAULT
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
      if (thread < half && farthest[thread + half] > farthest[thread]) {
        farthest[thread] = farthest[thread + half];
        at[thread] = at[thread + half];
      }
      __syncthreads();
    }
    chosen = at[0];  // FAULT
    if (thread == 0) out[round] = chosen;
#ifdef MENDED
    __syncthreads();
#endif
  }
}

void chosen_points(const opsmith::Context& ctx, const trophies::chosen_points_args& a) {
  if (a.N == 0 || a.rounds == 0) return;
  float* const nearest = ctx.scratch<float>(a.N).data();
  choose<<<1, kThreads, 0, opsmith::cuda_stream(ctx)>>>(
      a.x.data(), nearest, a.out.data(), static_cast<int>(a.N), static_cast<int>(a.rounds));
}
OPSMITH_KERNEL(trophies, chosen_points, cuda)
