// Waits until somebody else writes into `flag`, and gives up after a minute.
#include <opsmith/kernel.h>

#include <chrono>
#include <thread>

#include "wait_for.h"

void wait_for(const opsmith::Context& ctx, const python_test::wait_for_args& a) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  std::atomic_ref<int64_t> flag(a.flag[0]);
  while (flag.load() == 0) {
    if (std::chrono::steady_clock::now() > until) ctx.fail("nobody wrote");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}
OPSMITH_KERNEL(python_test, wait_for, cpu)
