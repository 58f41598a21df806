// State that a call must not change: the floating-point environment, threads, open files.
#pragma once

#include "memory.h"

#include <opsmith/detail/floating_point.h>

#include <dirent.h>
#include <sys/wait.h>

#include <cfenv>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace opsmith::harness {

struct State {
  int rounding = std::fegetround();
  uint64_t denormals = detail::FloatingPoint::read() & detail::FloatingPoint::flushing;
  int64_t threads = entries("/proc/self/task");
  int64_t files = entries("/proc/self/fd");
  bool children = has_children();

  // Returns the state after a call. The system lists a thread for a moment after it was joined.
  static State after(const State& before) {
    State now;
    for (int i = 0; i < 100 && now.threads > before.threads; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      now.threads = entries("/proc/self/task");
    }
    return now;
  }

  std::vector<std::string> differences(const State& before) const {
    std::vector<std::string> found;
    if (rounding != before.rounding) {
      found.push_back("left another rounding mode of floating-point numbers behind");
    }
    if (denormals != before.denormals) {
      found.push_back(denormals != 0 ? "left denormal numbers switched off (flush to zero)"
                                     : "left denormal numbers switched on");
    }
    if (files > before.files) {
      found.push_back("left " + count(files - before.files, "file") + " open");
    }
    if (children && !before.children) {
      found.push_back(
          "forked the process that called it, or started a program, and did not wait for its end");
    }
#ifndef OPSMITH_HARNESS_SANITIZED  // a sanitizer starts threads of its own
    if (threads > before.threads) {
      found.push_back("left " + count(threads - before.threads, "thread") +
                      " running after the call");
    }
#endif
    return found;
  }

 private:
  static bool has_children() {
    siginfo_t ended;
    return waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) == 0;
  }

  static std::string count(int64_t number, const char* what) {
    return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
  }
  static int64_t entries(const char* folder) {
    DIR* open = opendir(folder);
    if (open == nullptr) return 0;
    int64_t count = 0;
    while (readdir(open) != nullptr) ++count;
    closedir(open);
    return count;
  }
};

}  // namespace opsmith::harness
