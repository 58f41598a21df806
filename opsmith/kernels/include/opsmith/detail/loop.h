// A kernel's loop in pieces, for runtimes that call functions on several threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>

namespace opsmith::detail {

class Loop {
 public:
  using Body = void (*)(int64_t, int64_t, void*);

  Loop(int64_t begin, int64_t end, int64_t grain, int64_t threads, Body body, void* state)
      : begin_(begin), end_(end), body_(body), state_(state) {
    // More pieces than threads, so that a slow thread delays the others less.
    const int64_t wanted = std::clamp<int64_t>((end - begin + grain - 1) / grain, 1, threads * 4);
    size_ = (end - begin + wanted - 1) / wanted;
    count_ = (end - begin + size_ - 1) / size_;
  }

  int64_t count() const { return count_; }

  void piece(int64_t i) const {
    const int64_t first = begin_ + i * size_;
    body_(first, std::min(first + size_, end_), state_);
  }

  // Takes the next piece until none is left. A thread may come after all pieces are done, so it
  // shares the ownership.
  void work() {
    for (int64_t i = next_.fetch_add(1); i < count_; i = next_.fetch_add(1)) {
      piece(i);
      if (done_.fetch_add(1) + 1 == count_) done_.notify_all();
    }
  }
  // The other threads are at their last pieces: sleeping and waking up may take longer than these.
  void wait() const {
    for (int i = 0; i < 100 && done_.load() < count_; ++i) std::this_thread::yield();
    for (int64_t seen = done_.load(); seen < count_; seen = done_.load()) done_.wait(seen);
  }

 private:
  int64_t begin_, end_, size_, count_;
  Body body_;
  void* state_;
  std::atomic<int64_t> next_{0};
  std::atomic<int64_t> done_{0};
};

}  // namespace opsmith::detail
