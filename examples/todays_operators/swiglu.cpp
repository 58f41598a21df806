#include "swiglu.h"

#include <opsmith/kernel.h>

#include <cmath>

#include "swiglu_backward.h"

template <typename T>
T sigmoid(T x) {
  return 1 / (1 + std::exp(-x));
}

template <typename T>
void swiglu(const opsmith::Context& ctx, const today::swiglu_args<T>& a) {
  ctx.parallel_for(0, a.B, 16, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      for (int64_t c = 0; c < a.C; ++c) {
        const T gate = a.x(b, c);
        a.out(b, c) = gate * sigmoid(gate) * a.x(b, a.C + c);
      }
    }
  });
}
OPSMITH_KERNEL(today, swiglu, cpu, float, double)

template <typename T>
void swiglu_backward(const opsmith::Context& ctx, const today::swiglu_backward_args<T>& a) {
  ctx.parallel_for(0, a.B, 16, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      for (int64_t c = 0; c < a.C; ++c) {
        const T gate = a.x(b, c), open = sigmoid(gate), grad = a.grad(b, c);
        a.out(b, c) = grad * a.x(b, a.C + c) * (open * (1 + gate * (1 - open)));
        a.out(b, a.C + c) = grad * gate * open;
      }
    }
  });
}
OPSMITH_KERNEL(today, swiglu_backward, cpu, float, double)
