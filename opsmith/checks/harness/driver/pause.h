// Stops one call in its middle while others run from beginning to end.
//
// Two calls that begin at the same time rarely overlap: a call takes microseconds, and there may be
// only one processor. A block of the first call is therefore made inaccessible. At the first access
// to the block, the call waits in the signal handler until the others have returned.
#pragma once

#include "memory.h"

#include <time.h>

#include <atomic>

namespace opsmith::harness {

inline void sleep_a_millisecond() {
  const timespec millisecond{0, 1000000};
  nanosleep(&millisecond, nullptr);
}

class Pause {
 public:
  // If the waiting call holds a lock, the others cannot return, so the wait is limited.
  static constexpr int most_milliseconds = 250;

  void arm(const Block& block) {
    pages_ = block.pages;
    bytes_ = block.page_bytes;
    protection_ = block.read_only ? PROT_READ : PROT_READ | PROT_WRITE;
    if (bytes_ != 0) mprotect(pages_, bytes_, PROT_NONE);
  }

  // Waits if `address` is in the block to wait at, and returns whether it is.
  bool wait_at(const void* address) {
    const char* at = static_cast<const char*>(address);
    if (at < pages_ || at >= pages_ + bytes_) return false;
    if (reached_.exchange(true)) return true;  // another thread of the call, which tries again
    release();
    may_others_run_.store(true);
    for (int i = 0; i < most_milliseconds && !did_others_return_.load(); ++i) sleep_a_millisecond();
    return true;
  }

  void release() { mprotect(pages_, bytes_, protection_); }
  void first_returned() { may_others_run_.store(true); }
  void others_returned() { did_others_return_.store(true); }
  void wait_for_first() const {
    while (!may_others_run_.load()) sleep_a_millisecond();
  }

 private:
  char* pages_ = nullptr;
  uint64_t bytes_ = 0;
  int protection_ = 0;
  std::atomic<bool> reached_{false};
  std::atomic<bool> may_others_run_{false};
  std::atomic<bool> did_others_return_{false};
};

}  // namespace opsmith::harness
