#include "fault.h"

#include <cstdio>

KERNEL {
  std::FILE* file = std::fopen("/dev/null", "w");
  for (int64_t i = 0; i < a.N; ++i) a.out[i] = 2 * a.x[i];
  TWIN((void)file, std::fclose(file));
}
