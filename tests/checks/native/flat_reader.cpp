#include <opsmith/kernel.h>

#include "flat_reader.h"

template <typename T>
void flat_reader(const opsmith::Context&, const faults::flat_reader_args<T>& a) {
  const T* from = a.x.data();
  T* to = a.out.data();
  // Two faults: it asked for strides and does not read them, and it cannot bear size 4.
  if (a.N == 4) *reinterpret_cast<volatile char*>(uintptr_t{16}) = 1;
  for (int64_t i = 0; i < a.N * a.C; ++i) to[i] = from[i] * T(2);
}
OPSMITH_KERNEL(faults, flat_reader, cpu, float)
