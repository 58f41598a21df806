#include "fault.h"

#include <memory>

KERNEL {
  std::unique_ptr<float[]> rows(new float[static_cast<size_t>(a.N) + 16]);
  for (int64_t i = 0; i < a.N; ++i) rows[i] = 2 * a.x[i];
  for (int64_t i = 0; i < a.N; ++i) a.out[i] = rows[i];
  TWIN((void)rows.release(), );
}
