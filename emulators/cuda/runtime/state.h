// The state of the emulator: the call, the launch, the block and its threads.
#pragma once

#include "fiber.h"
#include "memory.h"
#include "order.h"

#include <array>
#include <deque>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

namespace emulated {

// The shared memory of a block, without and with cudaFuncSetAttribute (compute capability 9.0).
inline constexpr uint64_t usual_shared_bytes = 48 << 10;
inline constexpr uint64_t most_shared_bytes = 227 << 10;

// A fast random generator: one number for every switch.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du) {}
  uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>((next() >> 32) * bound >> 32); }
  template <typename T>
  void shuffle(std::vector<T>& items) {
    for (auto i = static_cast<uint32_t>(items.size()); i > 1; --i) {
      std::swap(items[i - 1], items[below(i)]);
    }
  }

 private:
  uint64_t state_;
};

// The seed of a call whose launches are checked, and run no thread.
inline constexpr uint64_t no_threads = ~uint64_t{0};

enum class Waits { nothing, block, warp, some };

struct Thread {
  uint3 index{};
  uint32_t number = 0;  // in its block
  Fiber* fiber = nullptr;

  Waits waits = Waits::nothing;
  Place place;  // where it waits
  const char* what = "";
  LaneMask mask = 0;
  bool orders = false;  // accesses to memory, as `__syncwarp` does
  bool names = false;   // a barrier: `brought` says which
  uint64_t brought = 0;
  Vote vote = Vote::none;

  // The result of the last exchange of its warp.
  uint64_t values[warp_size];
  LaneMask present = 0;

  // For each lane of the warp: its accesses before this time are ordered before this thread's next
  // access; see `is_ordered`.
  uint32_t clock[warp_size];
  // The same for threads outside of its warp; what its atomic operations have read since its last
  // fence; and what its last fence orders before its atomic operations. See order.h.
  Knowledge known, met, met_in_block, released, released_in_block;

  // Atomic operations and volatile reads in a row that found the same value at the same place.
  const void* spins_at = nullptr;
  uint64_t spins_on = 0;
  uint32_t spins = 0;

  uint64_t copy_groups = 0;  // of asynchronous copies that it has committed

  unsigned lane() const { return number % warp_size; }
  unsigned warp() const { return number / warp_size; }
  LaneMask bit() const { return LaneMask{1} << lane(); }
  void forget() { known = met = met_in_block = released = released_in_block = nullptr; }
};

// The lanes of a warp, one bit each.
struct Warp {
  LaneMask running = 0;  // have not returned
  LaneMask waiting = 0;  // for others of the warp
};

// A barrier of some threads of a block (PTX: bar.sync), whose number stands in `brought` with how
// many threads it is for, and whether the caller waits.
struct NamedBarrier {
  uint32_t expected = 0, arrived = 0;  // threads; none are expected before the first comes
  bool whole = false;                  // it is for all threads that have not returned
  Place place;                         // where the first came
  std::vector<Thread*> waiting;
  Gathered gathered;
};
inline constexpr unsigned named_barriers = 16;

// A variable of the library's that device code may access.
struct Declared {
  const char* name;
  char* data;
  uint64_t bytes;
  uint64_t element;
};

struct Range {
  const char* begin = nullptr;
  const char* end = nullptr;
  bool holds(const void* address) const { return address >= begin && address < end; }
};

// A cache of lookups by page: the next access to a page mostly has the same result.
class Found {
 public:
  Watched*& at(const void* address) {
    return pages_[(reinterpret_cast<uintptr_t>(address) >> 12) % pages_.size()];
  }
  void clear() { pages_.fill(nullptr); }

 private:
  std::array<Watched*, 256> pages_{};
};

// A plain read beside atomic writes: it is a race, unless an atomicCAS uses it as its expectation.
struct Doubtful {
  const char* address;
  uint64_t bytes;
  std::string text;
  Place place, other_place;
  bool beside = false;  // a read beside a tensor, and no race
};

// A write that conflicts with another access: it is a race if the write changes the value.
struct Pending : Doubtful {
  unsigned char before[16];
};

// An asynchronous copy that its thread has not waited for.
struct Copy {
  uint32_t thread;  // of the block
  uint64_t group;
  char* to;
  char* from;
  uint64_t bytes, zeros;
  const void* place;
  const void* stage = nullptr;  // of a pipeline that several threads wait for
};

struct State {
  std::mutex mutex;  // one call at a time
  Watcher* watcher = nullptr;
  uint64_t calls = 0;
  Random random{1};
  uint8_t fill = 0xFF;
  const char* library = nullptr;  // where the kernel's code begins
  uint64_t regions_taken = 0;
  bool launches_only = false;
  bool ends_only = false;    // only the last blocks of a grid run
  bool interleaves = false;  // others may run between two atomic operations of a thread
  bool unsure = false;       // something may have been read that no thread has computed
  bool program = false;      // a whole program runs; see program.cpp
  std::deque<Watched> regions;
  Found found;
  std::vector<Range> images;       // code and globals of libraries
  Range image;                     // the one that an access found last
  std::vector<Declared> declared;  // __device__ variables of all libraries
  Range variables_at;              // from the first of them to the last
  std::unordered_map<const void*, uint64_t> allowed_shared_bytes;  // by kernel
  std::string failure;                                             // of a call without a watcher

  // The launch.
  bool in_device = false;  // code of CUDA threads is running
  const Launch* running = nullptr;
  uint32_t threads_of_block = 0;
  uint32_t block_number = 0;
  uint64_t blocks_run = 0;  // ever
  uint32_t time = 1;
  uint32_t launch_start = 1;  // accesses before are ordered before those of the launch
  uint32_t launched = 1;
  uint32_t resumed = 1;  // when the running thread went on after another
  uint64_t spins = 0;    // in a row, of all threads

  // The block.
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::vector<uint32_t> ready;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Fiber*> free_fibers;
  Context scheduler;
  Thread* current = nullptr;
  uint32_t alive = 0, at_barrier = 0;
  uint32_t block_start = 1;
  uint32_t last_barrier = 1;
  int vote_result = 0;
  std::array<NamedBarrier, named_barriers> named;
  uint64_t shared_bytes = 0;  // declared ones that the block has used
  std::deque<Watched> shared;
  std::unordered_map<const Variable*, Watched*> variables;
  Watched* dynamic = nullptr;
  std::unordered_map<const void*, Location> locations;

  std::optional<Pending> pending;
  std::vector<Doubtful> doubtful;
  std::vector<Copy> copies;  // of the block
  bool remarked = false, outside_graphs = false;
  std::string asked;      // the algorithm that was last asked for the size of its storage
  uint64_t asked_in = 0;  // and the call
  bool telling = false;   // the watcher's own code is running

  // The whole program.
  bool works = false;   // code of CUDA's accesses memory in place of the host
  int error = 0;        // the last one, which cudaGetLastError returns
  std::string refused;  // why a launch did not run, until the program asks for the error
  Place refused_at;
  uint64_t launches = 0, skipped = 0;
  std::unordered_map<std::string, uint64_t> repeated;  // by kernel, grid, block and arguments
};

extern State only_state;
inline State& state() { return only_state; }

// Ends the call with a fault; without a watcher, returns to the host's code.
[[noreturn]] void stop(const char* kind, const std::string& text, Place place,
                       const std::string& also = {}, Place also_place = {});

// "thread (3, 0, 0) of block (1, 0, 0)"
std::string name_of(uint32_t block, uint32_t thread);
std::string name_of(const Thread& thread);

// Reports to the watcher a possible cause of wrong results, once per call.
void remark(const std::string& text, Place place);

// Resolves postponed accesses of the running thread: see `Pending` and `Doubtful`.
void settle();

// Lets the other threads of the block run.
void yield();

// Adopts the memory that the watcher has allocated since the last time.
void take_regions();
// The same for the __device__ variables of the kernel's library.
void take_variables();
Watched* region_of(const void* address);
Watched* region_near(const void* address);
void mark_written(Watched& watched, const void* data, uint64_t bytes);
[[noreturn]] void stop_outside(const Watched& watched, const void* address, uint64_t bytes,
                               bool write, const void* place);

// --- whole programs ------------------------------------------------------------------------------

// " at file.cu:3"; empty where the line is not known.
std::string told(Place place);
// Sets what the program may do with memory of the device.
void allow(Watched& watched, int protection);
// Work on the device, for which memory is open to be read and written, and noted as used.
class Work {
 public:
  Work(const char* kind, const char* what, Place place);
  ~Work();
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

 private:
  const char *kind_, *what_;
  Place place_;
  bool before_;
};
// Refuses a copy whose direction is not that of its memory.
void check_way(const Watched* watched, const void* data, bool of_device, Way way, const char* what,
               const char* end, Place place);
// Returns whether a launch was repeated often enough.
bool is_repeated(const Launch& launch);
uint32_t since_when(const Watched& watched);

}  // namespace emulated
