#include "fault.h"

// Two faults: it asked for strides and does not read them, and it cannot bear size 4.
template <typename T>
void NAME(const opsmith::Context&, const faults::FAULT_JOIN(NAME, _args) < T > &a) {
  if (TWIN(a.N == 4, false)) *reinterpret_cast<volatile char*>(uintptr_t{16}) = 1;
  for (int64_t n = 0; n < a.N; ++n) {
    for (int64_t c = 0; c < a.C; ++c) {
      a.out[n * a.C + c] = 2 * TWIN(a.x.data()[n * a.C + c], a.x(n, c));
    }
  }
}
FAULT_REGISTER(NAME, float)
