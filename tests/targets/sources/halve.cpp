// Half of x, and 1 + x: the first shows whether subnormal numbers are kept, the second how sums are
// rounded. With `pieces`, two threads take part: pieces wait for a second one for a minute. With
// `upward` the kernel rounds up.
#include <opsmith/kernel.h>

#include <cfenv>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>

#include "halve.h"

void halve(const opsmith::Context& ctx, const numbers_test::halve_args& a) {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  const auto arrive = [&] {
    const std::lock_guard<std::mutex> lock(mutex);
    threads.insert(std::this_thread::get_id());
    return threads.size();
  };
  if (a.upward) std::fesetround(FE_UPWARD);
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  ctx.parallel_for(0, a.N, a.pieces ? 1 : a.N, [&](int64_t begin, int64_t end) {
    while (arrive() < 2 && a.pieces && std::chrono::steady_clock::now() < until) {
      std::this_thread::yield();
    }
    for (int64_t i = begin; i < end; ++i) {
      a.out0[i] = a.x[i] * 0.5;
      a.out1[i] = 1 + a.x[i];
    }
    if (a.fail) ctx.fail("asked to");
  });
  if (a.upward) std::fesetround(FE_TONEAREST);
  a.out2[0] = static_cast<int64_t>(threads.size());
}
OPSMITH_KERNEL(numbers_test, halve, cpu)
