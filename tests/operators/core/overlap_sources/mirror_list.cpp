#include <opsmith/kernel.h>

#define TEXT_(text) #text
#define TEXT(text) TEXT_(text)
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#include TEXT(NAME.h)

// Right only where what is read does not change while this writes.
static void mirror(const opsmith::Tensor<float>& to, const opsmith::Tensor<const float>& from) {
  const int64_t n = to.size(0);
  for (int64_t i = 0; i < n; ++i) to(i) = from(n - 1 - i) + 1;
}

void NAME(const opsmith::Context&, const overlap::JOIN(NAME, _args) & a) {
  for (int64_t k = 0; k < a.xs.size(); ++k) mirror(a.xs[k], a.more[k]);
  if (a.count) mirror(a.count, a.last);
}
#define REGISTER(name) OPSMITH_KERNEL(overlap, name, cpu)
REGISTER(NAME)
