#include "runtime.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <stdexcept>
#include <vector>

namespace device {
namespace {

// How long after its turn what is launched begins. The other streams are so much slower than the
// default one that who does not wait for them reads what is not there yet.
constexpr std::chrono::microseconds latency{50};
constexpr std::chrono::milliseconds long_latency{5};

struct Block {
  int device;
  size_t pages;
  std::vector<Queue*> used_by;
};

// Each device has a piece of the addresses; behind all of them, at a distance, is the memory.
class Memory {
 public:
  Memory() {
    void* found =
        mmap(nullptr, 2 * distance, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED) throw std::runtime_error("the device has no addresses");
    base_ = static_cast<char*>(found);
    for (int device = 0; device < count; ++device) next_[device] = piece * device;
  }

  void* allocate(int device, size_t bytes) {
    const size_t pages = (bytes + page - 1) / page * page;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (next_[device] + pages + page > piece * (device + 1)) {
      throw std::runtime_error("the device is out of addresses");
    }
    char* first = base_ + next_[device];
    next_[device] += pages + page;  // the page between is nobody's
    char* memory = first + distance;
    if (mprotect(memory, pages, PROT_READ | PROT_WRITE) != 0) {
      throw std::runtime_error("the device is out of memory");
    }
    std::memset(memory, 0xff, pages);
    // A block ends where its pages end, as near as its alignment lets it.
    char* address = first + (pages - bytes) / alignment * alignment;
    blocks_[address] = {device, pages, {&queue(device, current_stream(device))}};
    return address;
  }

  void release(void* address) {
    const std::unique_lock<std::mutex> lock(mutex_);
    const auto found = blocks_.find(static_cast<char*>(address));
    const Block block = found->second;
    blocks_.erase(found);
    char* memory = base_ + (static_cast<char*>(address) - base_) / page * page + distance;
    const auto left = std::make_shared<std::atomic<size_t>>(block.used_by.size());
    for (Queue* queue : block.used_by) {
      queue->push([left, memory, pages = block.pages] {
        if (left->fetch_sub(1) == 1) {
          // Mapped anew, so that neighbours that are gone become one again.
          mmap(memory, pages, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
               -1, 0);
        }
      });
    }
  }

  void record(void* address, Queue* queue) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Queue*>& users = blocks_.at(static_cast<char*>(address)).used_by;
    for (Queue* user : users) {
      if (user == queue) return;
    }
    users.push_back(queue);
  }

  int device_of(const void* address) const {
    const char* byte = static_cast<const char*>(address);
    if (byte < base_ || byte >= base_ + piece * count) return -1;
    return static_cast<int>(static_cast<size_t>(byte - base_) / piece);
  }

 private:
  static constexpr size_t piece = distance / count;
  static constexpr size_t alignment = 64;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));

  std::mutex mutex_;
  char* base_;
  size_t next_[count];
  std::map<char*, Block> blocks_;
};

// Never destroyed: queues may be at work while the process ends.
Memory& memory() {
  static auto* const only = new Memory;
  return *only;
}

thread_local int device_now = 0;
thread_local int64_t stream_now[count] = {};

}  // namespace

Queue::Queue() {
  enqueue = [](Stream* self, void (*run)(void*), void* state) {
    static_cast<Queue*>(self)->push(
        [run, state, is_default = static_cast<Queue*>(self)->is_default.load()] {
          if (is_default) {
            std::this_thread::sleep_for(latency);
          } else {
            std::this_thread::sleep_for(long_latency);
          }
          run(state);
        });
  };
  thread_ = std::thread([this] { work(); });
}

uint64_t Queue::push(std::function<void()> work) {
  const std::lock_guard<std::mutex> lock(mutex_);
  waiting_.push_back(std::move(work));
  changed_.notify_all();
  return ++pushed_;
}

uint64_t Queue::last() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return pushed_;
}

bool Queue::done(uint64_t number) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return finished_ >= number;
}

void Queue::wait(uint64_t number) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return finished_ >= number; });
}

void Queue::hold(bool held) {
  const std::lock_guard<std::mutex> lock(mutex_);
  held_ = held;
  changed_.notify_all();
}

void Queue::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return !held_ && !waiting_.empty(); });
    std::function<void()> next = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    next();
    next = nullptr;
    lock.lock();
    ++finished_;
    changed_.notify_all();
  }
}

Queue& queue(int device, int64_t stream) {
  static Queue* const queues = new Queue[count * streams_of_each];
  Queue& found = queues[device * streams_of_each + stream];
  found.is_default = stream == 0;
  return found;
}

int current_device() { return device_now; }
void set_current_device(int device) { device_now = device; }
int64_t current_stream(int device) { return stream_now[device]; }
void set_current_stream(int device, int64_t stream) { stream_now[device] = stream; }

void* allocate(int device, size_t bytes) { return memory().allocate(device, bytes); }
void release(void* address) { memory().release(address); }
void record(void* address, int device, int64_t stream) {
  memory().record(address, &queue(device, stream));
}
int device_of(const void* address) { return memory().device_of(address); }

}  // namespace device
