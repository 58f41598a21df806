// The module's threads, which all its functions share.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

namespace opsmith::python {

// One loop, split into pieces; each thread takes the next piece when it is free. A thread may come
// after all pieces are done, so it shares the ownership.
class Loop {
 public:
  using Body = void (*)(int64_t, int64_t, void*);

  Loop(int64_t begin, int64_t end, int64_t piece, Body body, void* state)
      : begin_(begin),
        end_(end),
        piece_(piece),
        count_((end - begin + piece - 1) / piece),
        body_(body),
        state_(state) {}

  int64_t count() const { return count_; }

  void work() {
    for (int64_t i = next_.fetch_add(1); i < count_; i = next_.fetch_add(1)) {
      const int64_t first = begin_ + i * piece_;
      body_(first, std::min(first + piece_, end_), state_);
      if (done_.fetch_add(1) + 1 == count_) done_.notify_all();
    }
  }
  void wait() const {
    for (int64_t seen = done_.load(); seen < count_; seen = done_.load()) done_.wait(seen);
  }

 private:
  const int64_t begin_, end_, piece_, count_;
  const Body body_;
  void* const state_;
  std::atomic<int64_t> next_{0};
  std::atomic<int64_t> done_{0};
};

class Threads {
 public:
  // Returns the threads of this process: a fork does not have its parent's threads. They are never
  // joined, since no event tells when the last module stops using them.
  static Threads& here() {
    static std::mutex mutex;
    static Threads* threads = nullptr;
    const std::lock_guard<std::mutex> lock(mutex);
    if (threads == nullptr || threads->process_ != getpid()) threads = new Threads;
    return *threads;
  }

  static int32_t number() {
    static const int32_t found = asked();
    return found;
  }

  static void run(int64_t begin, int64_t end, int64_t grain, Loop::Body body, void* state) {
    // More pieces than threads, so that a slow thread delays the others less.
    const int64_t wanted = std::clamp<int64_t>((end - begin) / grain, 1, int64_t{4} * number());
    const int64_t piece = (end - begin + wanted - 1) / wanted;
    const auto loop = std::make_shared<Loop>(begin, end, piece, body, state);
    const int64_t helpers = std::min<int64_t>(loop->count(), number()) - 1;
    if (helpers > 0) here().help(loop, helpers);
    loop->work();
    loop->wait();
  }

 private:
  static int32_t asked() {
    for (const char* text : {std::getenv("OPSMITH_NUM_THREADS"), std::getenv("OMP_NUM_THREADS")}) {
      int32_t count = 0;
      if (text != nullptr) std::from_chars(text, text + std::strlen(text), count);
      if (count > 0) return count;
    }
    return std::max<int32_t>(static_cast<int32_t>(std::thread::hardware_concurrency()), 1);
  }

  Threads() : process_(getpid()) {
    for (int32_t i = 1; i < number(); ++i) std::thread([this] { serve(); }).detach();
  }

  void help(const std::shared_ptr<Loop>& loop, int64_t helpers) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      loops_.insert(loops_.end(), static_cast<size_t>(helpers), loop);
    }
    helpers == 1 ? wake_.notify_one() : wake_.notify_all();
  }

  [[noreturn]] void serve() {
    for (;;) {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait(lock, [this] { return !loops_.empty(); });
      const std::shared_ptr<Loop> loop = std::move(loops_.front());
      loops_.pop_front();
      lock.unlock();
      loop->work();
    }
  }

  const pid_t process_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Loop>> loops_;
};

}  // namespace opsmith::python
