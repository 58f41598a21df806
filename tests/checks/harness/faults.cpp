// Doubles x; `fault` picks what is wrong with it.
#include <opsmith/kernel.h>
#include "doubled.h"

#include <fcntl.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <cfenv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

namespace {

volatile float shared_value;  // what two calls at once must not have
volatile float shared_table[64];
std::mutex table_lock;
volatile int64_t zero = 0;
std::thread worker;
volatile float* kept_scratch;

// Waits until a thread sleeps: the harness's own does after a call, where another one still runs.
void wait_until_asleep(pid_t thread) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
  for (int i = 0; i < 100000; ++i) {
    char text[512] = {};
    const int file = open(path, O_RDONLY);
    const ssize_t count = read(file, text, sizeof text - 1);
    close(file);
    const char* name_end = std::strrchr(text, ')');
    if (count > 0 && name_end != nullptr && name_end[2] == 'S') return;
    usleep(100);
  }
}

}  // namespace

void doubled(const opsmith::Context& ctx, const harness_faults::doubled_args& a) {
  const int64_t n = a.N;
  const float* x = a.x.data();
  float* out = a.out.data();
  const std::string_view fault = a.fault;
  const auto copy = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = 2 * x[i];
  };

  if (fault == "unwritten last") {
    copy(0, n - 1);
  } else if (fault == "sum over pieces") {
    // Right as long as the loop is one piece.
    ctx.parallel_for(0, n, 4096, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] = 2 * (x[i] + static_cast<float>(i - i));
      if (begin != 0) out[begin] = out[begin - 1];
    });
  } else if (fault == "wrong in any order") {
    ctx.parallel_for(0, n, 4, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] = 3 * x[i];
    });
  } else if (fault == "wrong, and past the end of the longest") {
    copy(0, n);
    out[n < 40 ? 0 : n] = 1;
  } else if (fault == "wrong without pieces") {
    for (int64_t i = 0; i < n; ++i) out[i] = 3 * x[i];
  } else if (fault == "order of pieces") {
    float last = 0;
    ctx.parallel_for(0, n, 4096, [&](int64_t begin, int64_t end) {
      copy(begin, end);
      if (static_cast<float>(begin) < last) out[begin] = -1;
      last = static_cast<float>(begin);
    });
  } else if (fault == "one buffer for all threads") {
    ctx.parallel_for(0, n, 4096, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        shared_value = 2 * x[i];
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        out[i] = shared_value;
      }
    });
  } else if (fault == "one buffer for all calls") {
    for (int64_t i = 0; i < n; ++i) {
      shared_value = 2 * x[i];
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      out[i] = shared_value;
    }
  } else if (fault == "one table for all calls") {
    for (int64_t i = 0; i < n; ++i) shared_table[i] = 2 * x[i];
    for (int64_t i = 0; i < n; ++i) out[i] = shared_table[i];
  } else if (fault == "one table behind a lock") {
    // Not a fault.
    const std::lock_guard<std::mutex> alone(table_lock);
    for (int64_t i = 0; i < n; ++i) shared_table[i] = 2 * x[i];
    for (int64_t i = 0; i < n; ++i) out[i] = shared_table[i];
  } else if (fault == "scratch not written") {
    const auto scratch = ctx.scratch<float>(n);
    for (int64_t i = 0; i < n; ++i) out[i] = 2 * x[i] + scratch[i];
  } else {
    ctx.parallel_for(0, n, 4, copy);
  }

  if (fault == "read past the end") out[0] += 0 * x[n];
  if (fault == "read before the start") out[0] += 0 * x[-1];
  if (fault == "write past the end") out[n] = 0;
  if (fault == "write far past the end") out[n + 100000] = 0;
  if (fault == "write an argument") const_cast<float*>(x)[0] = 1;
  if (fault == "scratch past the end") ctx.scratch<float>(16)[16] = 1;
  if (fault == "scratch of an earlier call" && kept_scratch != nullptr) kept_scratch[0] = 1;
  if (fault == "scratch of an earlier call") kept_scratch = ctx.scratch<float>(16).data();
  if (fault == "leak") static_cast<void>(*new volatile char[100]);
  if (fault == "rounding mode") std::fesetround(FE_UPWARD);
  if (fault == "flush to zero") _mm_setcsr(_mm_getcsr() | 0x8040);
  if (fault == "thread left") {
    worker = std::thread([] { std::this_thread::sleep_for(std::chrono::seconds(5)); });
    worker.detach();
  }
  if (fault == "division by zero") out[0] = static_cast<float>(n / zero);
  if (fault == "late write") {
    worker = std::thread([out, caller = gettid()] {
      wait_until_asleep(caller);  // not for some time, in which a busy machine may stop the caller
      out[0] = -1;
    });
    worker.detach();
  }
  if (fault == "exit") std::exit(86);
  if (fault == "fork" && fork() < 0) ctx.fail("cannot fork");
  if (fault == "hang") std::this_thread::sleep_for(std::chrono::seconds(60));
  if (fault == "fail") ctx.fail("no ", n, " today");
  if (fault == "shift")
    out[0] += static_cast<float>(0 * (int32_t{1} << static_cast<int>(n + 30 + zero)));
}
OPSMITH_KERNEL(harness_faults, doubled, cpu)
