#include "fault.h"

#include <algorithm>
#include <vector>

// Adds pairwise, the most accurate order there is: of few roundings too, terms that cancel show
// one.
KERNEL {
  for (int64_t row = 0; row < a.N; ++row) {
    std::vector<TWIN(opsmith::half, float)> sums(std::max<size_t>(a.C, 1));
    for (int64_t i = 0; i < a.C; ++i) sums[i] = a.x[row * a.C + i];
    for (; sums.size() > 1; sums.resize((sums.size() + 1) / 2)) {
      for (size_t i = 0; i < sums.size() / 2; ++i) sums[i] += sums[sums.size() - 1 - i];
    }
    a.out[row] = sums[0];
  }
}
