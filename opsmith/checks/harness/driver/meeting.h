// Lets the threads of a loop meet at their first write to each block.
//
// A piece that reads a sum, adds and writes it back loses nothing unless another one writes in
// between, which takes nanoseconds of luck. Here blocks are read-only when the loop begins. A
// thread waits at its first write to a block until the others wait too, or have no more pieces. By
// then all have read, so that each but the last loses what it adds; an atomic operation reads anew.
#pragma once

#include "pause.h"

#include <atomic>
#include <deque>

namespace opsmith::harness {

class Meeting {
 public:
  // To be called before the threads begin; `begin` and `end` by each thread.
  Meeting(const std::vector<Block>& blocks, int32_t threads)
      : places_(static_cast<size_t>(threads)) {
    for (const Block& block : blocks) {
      if (block.read_only || block.page_bytes == 0) continue;
      blocks_.emplace_back(block);
      mprotect(block.pages, block.page_bytes, PROT_READ);
    }
  }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  ~Meeting() {
    for (Shut& shut : blocks_) open(shut);
  }

  void begin(size_t thread) { mine_ = &places_[thread]; }
  void end() {
    mine_->store(&gone_);
    mine_ = nullptr;
  }

  // Waits if `address` is in a block, and returns whether it is; then the write can be tried again.
  bool wait_at(const void* address) {
    const char* at = static_cast<const char*>(address);
    for (Shut& shut : blocks_) {
      if (at < shut.pages || at >= shut.pages + shut.bytes) continue;
      if (mine_ == nullptr) open(shut);  // a thread that the kernel started
      for (int i = 0; i < most_milliseconds && !shut.opened.load(); ++i) {
        mine_->store(&shut);
        if (!open_if_all_wait()) sleep_a_millisecond();
      }
      open(shut);
      return true;
    }
    return false;
  }

 private:
  // If the thread that waits holds a lock, the others do not come, so the wait is limited.
  static constexpr int most_milliseconds = 50;

  struct Shut {
    explicit Shut(const Block& block) : pages(block.pages), bytes(block.page_bytes) {}
    char* pages;
    uint64_t bytes;
    std::atomic<bool> opened{false};
  };

  static void open(Shut& shut) {
    mprotect(shut.pages, shut.bytes, PROT_READ | PROT_WRITE);
    shut.opened.store(true);
  }

  bool open_if_all_wait() {
    if (deciding_.test_and_set()) return false;
    bool all = true;
    for (const auto& place : places_) {
      const Shut* shut = place.load();
      all = all && shut != nullptr && (shut == &gone_ || !shut->opened.load());
    }
    for (auto& place : places_) {
      Shut* shut = place.load();
      if (all && shut != &gone_) open(*shut);
    }
    deciding_.clear();
    return all;
  }

  Shut gone_{Block{}};
  std::deque<Shut> blocks_;
  std::vector<std::atomic<Shut*>> places_;  // where each thread waits
  static inline thread_local std::atomic<Shut*>* mine_ = nullptr;
  std::atomic_flag deciding_ = ATOMIC_FLAG_INIT;
};

inline std::atomic<Meeting*> meeting{nullptr};  // of the loop that runs

}  // namespace opsmith::harness
