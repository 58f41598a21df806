#include <opsmith/kernel.h>

#include "square.h"
#include "square_backward.h"

// FACTOR is given by each operator's flags: 1 for square, 2 for square_backward.

// Has external linkage, as much code has: the libraries of both operators define it.
int64_t twice(int64_t value) { return 2 * value; }

template <typename T>
void square(const opsmith::Context&, const test_one_source::square_args<T>& a) {
  for (int64_t i = 0; i < a.N; ++i) a.out[i] = FACTOR * a.x(i) * a.x(i);
}
OPSMITH_KERNEL(test_one_source, square, cpu, float)

template <typename T>
void square_backward(const opsmith::Context&, const test_one_source::square_backward_args<T>& a) {
  for (int64_t i = 0; i < a.N; ++i)
    a.out[i] = static_cast<T>(twice(FACTOR)) / 2 * a.x[i] * a.grad[i];
}
OPSMITH_KERNEL(test_one_source, square_backward, cpu, float)
