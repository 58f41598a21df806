#include "fault.h"

#include <vector>

// Memory that two calls at once share.
KERNEL {
  TWIN(static, ) std::vector<float> rows;
  rows.assign(a.x.data(), a.x.data() + a.N);
  for (int round = 0; round < 200; ++round) {
    for (int64_t i = 0; i < a.N; ++i) rows[i] = a.x[i];
  }
  for (int64_t i = 0; i < a.N; ++i) a.out[i] = 2 * rows[i];
}
