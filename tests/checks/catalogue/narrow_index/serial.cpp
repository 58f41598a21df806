#include <opsmith/kernel.h>

#include <cmath>

#include "serial.h"

void serial(const opsmith::Context&, const narrow::serial_args& a) {
  for (int64_t i = 0; i < a.x.numel(); ++i) a.out[i] = std::sin(std::sin(std::sin(a.x[i])));
}
OPSMITH_KERNEL(narrow, serial, cpu)
