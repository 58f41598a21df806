// Numbers of <opsmith/philox.h>, and the words of PyTorch's own engine.
#include <opsmith/kernel.h>
#include <opsmith/philox.h>

#include "numbers.h"

// The engine is no part of the stable interface, which kernels are held to.
#undef TORCH_STABLE_ONLY
#undef TORCH_TARGET_VERSION
#include <ATen/core/PhiloxRNGEngine.h>

void numbers(const opsmith::Context&, const random_numbers::numbers_args& a) {
  const opsmith::Philox random(a.rng.data(), a.subsequence);
  for (int64_t i = 0; i < a.n; ++i) {
    a.out0[i] = random.word(i);
    a.out1[i] = random.uniform(i);
    a.out2[i] = random.bernoulli(i, a.p);
    a.out3[i] = random.normal(i);
    a.out4[i] = random.normal<double>(i);
  }
  at::philox_engine engine(a.rng[0], a.subsequence, a.rng[1]);
  for (int64_t i = 0; i < a.n; ++i) a.out5[i] = engine();
}
OPSMITH_KERNEL(random_numbers, numbers, cpu)
