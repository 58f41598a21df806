// The threads of a host, which all its functions share.
#pragma once

#include <opsmith/detail/loop.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

namespace opsmith::hosted {

using detail::Loop;

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
    const auto loop = std::make_shared<Loop>(begin, end, grain, number(), body, state);
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

}  // namespace opsmith::hosted
