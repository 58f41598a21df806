// One operator that does what `what` says, to see what the runtime makes of it.
#include <opsmith/kernel.h>

#include <atomic>
#include <string>

#include "probe.h"

void probe(const opsmith::Context& ctx, const kernels_test::probe_args& a) {
  if (a.what == "throw") throw std::runtime_error("thrown on purpose");
  if (a.what == "throw int") throw 3;
  if (a.what == "fail") ctx.fail("size ", a.N, " and ", 0.5, " and ", opsmith::half(2.5f));
  if (a.what == "fail in words") ctx.fail(std::string("text"), a.N == 3);
  if (a.what == "bad_alloc") throw std::bad_alloc();
  if (a.what == "no allocate") return;
  if (a.what == "wrong rank") a.out.allocate({1});
  if (a.what == "wrong size") a.out.allocate({1, a.N + 1});
  if (a.what == "negative") a.out.allocate({-1, a.N});
  if (a.what == "throw in parallel") {
    ctx.parallel_for(0, a.N, 1, [&](int64_t begin, int64_t) {
      throw std::runtime_error("piece " + std::to_string(begin == 0 ? 0 : 1));
    });
  }
  std::atomic<int64_t> sum{0};
  if (a.what == "parallel") {
    ctx.parallel_for(0, a.N, 10, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sum += i;
    });
    if (ctx.num_threads() < 1) ctx.fail("no threads");
  }
  if (a.what == "scratch") {
    ctx.parallel_for(0, 64, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto memory = ctx.scratch<double>(1000 + i);
        if (reinterpret_cast<uintptr_t>(memory.data()) % 64 != 0) ctx.fail("not aligned");
        for (double& value : memory) value = 1;
        sum += static_cast<int64_t>(memory.size());
      }
    });
    if (!ctx.scratch<char>(0).empty()) ctx.fail("not empty");
  }
  if (a.what == "huge scratch") ctx.scratch<double>(int64_t{1} << 60);
  auto out = a.out.allocate({1, a.N});
  for (int64_t i = 0; i < a.N; ++i) out[i] = sum;
}
OPSMITH_KERNEL(kernels_test, probe, cpu)
