// The device itself: memory in protected pages, and queues that are threads. Knows no PyTorch.
#pragma once

#include "device.h"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace device {

inline constexpr int count = 2;
inline constexpr int streams_of_each = 4;  // the default stream is number 0

// A queue of work, done in order by its thread.
class Queue : public Stream {
 public:
  std::atomic<bool> is_default{false};

  Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  // Work number: those up to it are done once `done(number)`.
  uint64_t push(std::function<void()> work);
  uint64_t last() const;
  bool done(uint64_t number) const;
  void wait(uint64_t number);
  void wait() { wait(last()); }

  // While a queue is held it does nothing, so that a test decides what comes first.
  void hold(bool held);

 private:
  void work();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  uint64_t pushed_ = 0;
  uint64_t finished_ = 0;
  bool held_ = false;
  std::thread thread_;
};

Queue& queue(int device, int64_t stream);

// Where the thread's work goes.
int current_device();
void set_current_device(int device);
int64_t current_stream(int device);
void set_current_stream(int device, int64_t stream);

// An address of `bytes` that only queues can follow. What was never written is not a number, and
// pages that belong to no block are protected from queues too.
void* allocate(int device, size_t bytes);
// Takes the memory away once the queues that may use it are there.
void release(void* address);
// Another stream uses the block.
void record(void* address, int device, int64_t stream);
// The device of an address, -1 for memory of the host.
int device_of(const void* address);

}  // namespace device
