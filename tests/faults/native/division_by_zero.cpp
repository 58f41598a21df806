#include "fault.h"

KERNEL {
  const int64_t parts = TWIN(a.N / 2, std::max<int64_t>(a.N / 2, 1));
  const int64_t each = a.N / parts;
  for (int64_t i = 0; i < a.N; ++i) a.out[i] = 2 * a.x[i] + 0 * static_cast<float>(each);
}
