#include "soft_dtw.h"

#include <opsmith/kernel.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "soft_dtw_backward.h"

template <typename T>
void soft_dtw(const opsmith::Context& ctx, const today::soft_dtw_args<T>& a) {
  const T gamma = static_cast<T>(a.gamma), far = std::numeric_limits<T>::infinity();
  ctx.parallel_for(0, a.B, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      for (int64_t i = 0; i < a.N; ++i) {
        for (int64_t j = 0; j < a.M; ++j) {
          const T both = i > 0 && j > 0 ? a.out1(b, i - 1, j - 1) : i + j == 0 ? T(0) : far;
          const T up = i > 0 ? a.out1(b, i - 1, j) : far;
          const T left = j > 0 ? a.out1(b, i, j - 1) : far;
          const T least = std::min({both, up, left});
          const T sum = std::exp((least - both) / gamma) + std::exp((least - up) / gamma) +
                        std::exp((least - left) / gamma);
          a.out1(b, i, j) = a.cost(b, i, j) + (least - gamma * std::log(sum));
        }
      }
      a.out0[b] = a.out1(b, a.N - 1, a.M - 1);
    }
  });
}
OPSMITH_KERNEL(today, soft_dtw, cpu, float, double)

template <typename T>
void soft_dtw_backward(const opsmith::Context& ctx, const today::soft_dtw_backward_args<T>& a) {
  const T gamma = static_cast<T>(a.gamma);
  const auto& table = a.result_out1;
  ctx.parallel_for(0, a.B, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      for (int64_t i = a.N - 1; i >= 0; --i) {
        for (int64_t j = a.M - 1; j >= 0; --j) {
          T share = i == a.N - 1 && j == a.M - 1 ? a.grad_out0[b] : T(0);
          const auto add = [&](int64_t n, int64_t m) {
            if (n >= a.N || m >= a.M) return;
            const T slack = table(b, n, m) - table(b, i, j) - a.cost(b, n, m);
            share += a.out(b, n, m) * std::exp(slack / gamma);
          };
          add(i + 1, j + 1);
          add(i + 1, j);
          add(i, j + 1);
          a.out(b, i, j) = share;
        }
      }
    }
  });
}
OPSMITH_KERNEL(today, soft_dtw_backward, cpu, float, double)
