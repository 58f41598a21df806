#include "fault.h"

#include <atomic>

KERNEL {
  std::atomic<double> right{0};
  volatile double wrong = 0;
  ctx.parallel_for(0, a.N, 4096, [&](int64_t begin, int64_t end) {
    double part = 0;
    for (int64_t i = begin; i < end; ++i) {
      part += a.x[i];
      TWIN(wrong = part, (void)wrong);
    }
    right.fetch_add(part);
  });
  a.out[0] = static_cast<float>(TWIN(wrong, right.load()));
}
