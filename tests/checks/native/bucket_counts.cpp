#include "bucket_counts.h"
#include <opsmith/kernel.h>
#include <algorithm>

template <typename T>
void bucket_counts(const opsmith::Context&, const kinds::bucket_counts_args<T>& a) {
  std::fill_n(a.out.data(), a.E + 1, int64_t(0));
  for (int64_t i = 0; i < a.N; ++i) {
    int64_t place = 0;
    while (place < a.E && double(a.x[i]) >= double(a.edges[place])) ++place;
    ++a.out[place];
  }
}
OPSMITH_KERNEL(kinds, bucket_counts, cpu, float, double, opsmith::half, opsmith::bfloat16)
