#include <opsmith/kernel.h>

#define TEXT_(text) #text
#define TEXT(text) TEXT_(text)
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#include TEXT(NAME.h)

// Right only where what is read does not change while this writes.
void NAME(const opsmith::Context&, const overlap::JOIN(NAME, _args) & a) {
  for (int64_t i = 0; i < a.N; ++i) {
    const int64_t other = a.N - 1 - i;
    float sum = a.x(other);
    for (int64_t k = 0; k < a.more.size(); ++k) sum += a.more[k](other);
    a.out(i) = sum;
    if (a.count) a.count(i) += 1;
  }
}
#define REGISTER(name) OPSMITH_KERNEL(overlap, name, cpu)
REGISTER(NAME)
