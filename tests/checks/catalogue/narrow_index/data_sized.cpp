#include <opsmith/kernel.h>

#include <algorithm>
#include <vector>

#include "data_sized.h"

#ifndef INDEX
#define INDEX int64_t
#endif

void data_sized(const opsmith::Context&, const narrow::data_sized_args& a) {
  std::vector<float> found;
  for (int64_t n = 0; n < a.N; ++n) {
    const float value = a.x[static_cast<INDEX>(n * a.C)];
    if (value > 0) found.push_back(value);
  }
  const auto out = a.out.allocate({static_cast<int64_t>(found.size())});
  std::copy(found.begin(), found.end(), out.data());
}
OPSMITH_KERNEL(narrow, data_sized, cpu)
