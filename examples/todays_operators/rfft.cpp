#include "rfft.h"

#include <opsmith/kernel.h>

#include <cmath>

template <typename T>
void rfft(const opsmith::Context& ctx, const today::rfft_args<T>& a) {
  const int64_t bins = a.N / 2 + 1;
  std::span<double> cosine = ctx.scratch<double>(a.N), sine = ctx.scratch<double>(a.N);
  for (int64_t n = 0; n < a.N; ++n) {
    const double angle = 2 * M_PI * static_cast<double>(n) / static_cast<double>(a.N);
    cosine[n] = std::cos(angle);
    sine[n] = -std::sin(angle);
  }
  ctx.parallel_for(0, a.B, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      for (int64_t k = 0; k < bins; ++k) {
        double real = 0, imag = 0;
        for (int64_t n = 0; n < a.N; ++n) {
          real += a.x(b, n) * cosine[k * n % a.N];
          imag += a.x(b, n) * sine[k * n % a.N];
        }
        a.out(b, k) = opsmith::complex<T>(static_cast<T>(real), static_cast<T>(imag));
      }
    }
  });
}
OPSMITH_KERNEL(today, rfft, cpu, float, double)
