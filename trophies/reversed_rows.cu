// Rows in turn, each copied to shared memory and written out of it in reverse: the copy of the next
// row may fill the memory out of which other warps still write the last one.
#include "reversed_rows.h"

#include <opsmith/cuda.h>

constexpr int kColumns = 128;

__global__ void reverse(const float* x, float* out, int rows) {
  __shared__ float tile[kColumns];
  const int column = threadIdx.x;
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(tile + column));
  for (int row = 0; row < rows; ++row) {
    const float* from = x + row * kColumns + column;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"  // FAULT
                 :
                 : "r"(address), "l"(from)
                 : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    out[row * kColumns + column] = tile[kColumns - 1 - column];  // FAULT
#ifdef MENDED
    __syncthreads();
#endif
  }
}

void reversed_rows(const opsmith::Context& ctx, const trophies::reversed_rows_args& a) {
  reverse<<<1, kColumns, 0, opsmith::cuda_stream(ctx)>>>(a.x.data(), a.out.data(),
                                                         static_cast<int>(a.N));
}
OPSMITH_KERNEL(trophies, reversed_rows, cuda)
