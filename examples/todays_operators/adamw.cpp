#include <opsmith/kernel.h>

#include <cmath>

#include "adamw.h"

template <typename T>
void adamw(const opsmith::Context& ctx, const today::adamw_args<T>& a) {
  // In double before they are rounded to T: 1 - 0.999f is off by 5e-5 of itself.
  const T beta1 = a.beta1, rest1 = 1 - a.beta1;
  const T beta2 = a.beta2, rest2 = 1 - a.beta2;
  const T decay = 1 - a.lr * a.weight_decay;
  const T rate = a.lr / (1 - std::pow(a.beta1, static_cast<double>(a.step)));
  const T second = 1 - std::pow(a.beta2, static_cast<double>(a.step));
  const T eps = a.eps;
  for (int64_t k = 0; k < a.params.size(); ++k) {
    const opsmith::Tensor<T> param = a.params[k];
    const opsmith::Tensor<const T> grad = a.grads[k];
    const opsmith::Tensor<T> average = a.exp_avgs[k];
    const opsmith::Tensor<T> square = a.exp_avg_sqs[k];
    ctx.parallel_for(0, param.numel(), 4096, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        average[i] = beta1 * average[i] + rest1 * grad[i];
        square[i] = beta2 * square[i] + rest2 * (grad[i] * grad[i]);
        param[i] = decay * param[i] - rate * average[i] / (std::sqrt(square[i] / second) + eps);
      }
    });
  }
}

OPSMITH_KERNEL(today, adamw, cpu, float, double)
