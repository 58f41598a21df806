// The interface of the CUDA emulator for a kernel's library. The runtime is a separate library
// (../../../runtime), shared by all kernels and compiled once.
//
// One call runs at a time. Each CUDA thread is a fiber, which yields where CUDA threads wait for
// each other; blocks run one after another. The order of blocks and of threads is drawn from a
// seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#define OPSMITH_EMULATED_EXPORT __attribute__((visibility("default")))

struct uint3 {
  unsigned int x, y, z;
};

struct dim3 {
  unsigned int x = 1, y = 1, z = 1;
  constexpr dim3(unsigned int x_ = 1, unsigned int y_ = 1, unsigned int z_ = 1)
      : x(x_), y(y_), z(z_) {}
  constexpr dim3(uint3 other) : x(other.x), y(other.y), z(other.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};

// The indices of the running CUDA thread.
OPSMITH_EMULATED_EXPORT extern uint3 threadIdx;
OPSMITH_EMULATED_EXPORT extern uint3 blockIdx;
OPSMITH_EMULATED_EXPORT extern dim3 blockDim;
OPSMITH_EMULATED_EXPORT extern dim3 gridDim;

namespace emulated {

// A place in the user's code: a line, or an address in a library.
struct Place {
  const char* file = nullptr;
  int line = 0;
  const void* address = nullptr;
};

// The line of the call, for a function that has this as its last argument.
constexpr Place here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return {file, line, nullptr};
}

// Memory of the device that was not allocated by this runtime.
struct Region {
  const char* name = "";  // "argument 'x'"
  char* data = nullptr;
  uint64_t size = 0;
  uint64_t element = 1;
  uint64_t guard = 0;    // the number of unused bytes before and after
  bool written = false;  // whether it holds values
  bool read_only = false;
  bool vast = false;     // too large to be watched, but for whether it is left
  bool repeats = false;  // and mapped again and again: what is read may be another element
};

// The watcher of a call: provides the seed, knows the memory, and receives reports.
class Watcher {
 public:
  virtual uint64_t seed() = 0;
  virtual uint8_t fill() = 0;  // the byte that memory begins with
  virtual uint64_t region_count() = 0;
  virtual Region region(uint64_t number) = 0;
  // Ends the call with a fault; does not return. `kind` is one word for the fault: race, bounds, …;
  // `also` is a second place, if its text is not empty.
  virtual void fault(const char* kind, const char* text, Place place, const char* also,
                     Place also_place) = 0;
  // Reports a possible cause of wrong results, which is otherwise harmless.
  virtual void remark(const char* text, Place place) = 0;
  // Whether the call is a whole program: its work may be on the default stream, and the host may
  // not access the memory of the device.
  virtual bool is_program() { return false; }
  // Whether a read of global memory that nothing had written is a fault.
  virtual bool forbids_unwritten() { return false; }
  // How often a launch runs that is repeated with the same arguments.
  virtual uint64_t repeats() { return UINT64_MAX; }

 protected:
  ~Watcher() = default;
};

// Begins and ends a call; without a watcher, only waiting for each other is checked.
OPSMITH_EMULATED_EXPORT void begin_call(Watcher* watcher);
OPSMITH_EMULATED_EXPORT void end_call();

class Call {
 public:
  explicit Call(Watcher* watcher = nullptr) { begin_call(watcher); }
  ~Call() { end_call(); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
};

// --- host --------------------------------------------------------------------------------------

struct Launch {
  dim3 grid;
  dim3 block;
  uint64_t shared_bytes;
  const char* kernel;
  const void* function;  // its address
  bool default_stream;
  Place place;
  void (*run)(void* state);  // one CUDA thread
  void* state;
  uint64_t state_bytes;  // the kernel's arguments, which threads may read
  uint64_t items = 0;    // of an algorithm of a library, with a thread each; 0 for a kernel
};
OPSMITH_EMULATED_EXPORT void launch(const Launch& launch);

// The host copies or fills device memory.
enum class Way { host_to_host, host_to_device, device_to_host, device_to_device, any };
OPSMITH_EMULATED_EXPORT void host_copies(void* to, const void* from, uint64_t bytes,
                                         const char* what, Place place, Way way = Way::any,
                                         bool waits = true);
OPSMITH_EMULATED_EXPORT void host_fills(void* data, int value, uint64_t bytes, const char* what,
                                        Place place, bool waits = false);
// The host waits for the device.
OPSMITH_EMULATED_EXPORT void synchronise();
// The code of the last error of a program's, which looks at it.
OPSMITH_EMULATED_EXPORT int last_error(bool forget);
OPSMITH_EMULATED_EXPORT int set_error(int code);
// A function of CUDA's that is declared, so that programs compile, and not emulated.
[[noreturn]] OPSMITH_EMULATED_EXPORT void not_emulated(const char* what, Place place);
// The host is about to run an algorithm on `data`, which must not be in device memory.
OPSMITH_EMULATED_EXPORT void host_runs(const char* what, const void* data, Place place);
// The host calls what no CUDA graph captures.
OPSMITH_EMULATED_EXPORT void outside_graphs(const char* what, Place place);
// An algorithm is asked for the size of its temporary storage, or is given storage.
OPSMITH_EMULATED_EXPORT void asks_for_storage(const char* what, Place place);
OPSMITH_EMULATED_EXPORT void takes_storage(const char* what, uint64_t given, uint64_t needed,
                                           Place place);
// Refuses the default stream in place of the call's.
OPSMITH_EMULATED_EXPORT void check_stream(const void* stream, const char* what, Place place);

// An element of 0 bytes: the type is not known. Memory `for_host` is the host's too.
OPSMITH_EMULATED_EXPORT void* allocate(uint64_t bytes, uint64_t element = 1,
                                       const char* what = "cudaMalloc", Place place = {},
                                       bool for_host = false);
OPSMITH_EMULATED_EXPORT void release(void* data, const char* what = "cudaFree", Place place = {});

// For an allocator of the host's, which has memory of the device beside this runtime's. Memory that
// begins where known memory does takes its place.
OPSMITH_EMULATED_EXPORT void watch_memory(const Region& region);
OPSMITH_EMULATED_EXPORT void forget_memory(const void* data);
OPSMITH_EMULATED_EXPORT void memory_is_written(const void* data, uint64_t bytes);
// The host is about to decide by values that the device has computed.
OPSMITH_EMULATED_EXPORT void host_reads_results();

// Code that stands for work on the device, and is not the user's: its accesses are not checked.
class OPSMITH_EMULATED_EXPORT Unwatched {
 public:
  explicit Unwatched(bool really = true);
  ~Unwatched();
  Unwatched(const Unwatched&) = delete;
  Unwatched& operator=(const Unwatched&) = delete;

 private:
  bool before_;
};

// Raises the limit of a kernel's dynamic shared memory; returns whether devices have so much.
OPSMITH_EMULATED_EXPORT bool allow_shared_bytes(const void* kernel, uint64_t bytes);

// A __device__ variable of the library's, while the library is loaded.
class OPSMITH_EMULATED_EXPORT DeviceVariable {
 public:
  DeviceVariable(const char* name, void* data, uint64_t bytes, uint64_t element);
  ~DeviceVariable();
  DeviceVariable(const DeviceVariable&) = delete;
  DeviceVariable& operator=(const DeviceVariable&) = delete;

 private:
  void* data_;
};

// --- device ------------------------------------------------------------------------------------

// One declaration of __shared__ memory.
struct Variable {
  const char* name;
  uint64_t size;
  uint64_t alignment;
  uint64_t element;
  uint64_t block = 0;  // the block that it was prepared for
  char* data = nullptr;
};
OPSMITH_EMULATED_EXPORT char* shared_memory(Variable& variable, Place place);
OPSMITH_EMULATED_EXPORT char* dynamic_shared_memory(const char* name, Place place);
OPSMITH_EMULATED_EXPORT uint64_t dynamic_shared_bytes();
// The address of shared memory that instructions take. As on devices, it is not the pointer cut to
// 32 bits.
inline uint32_t shared_address(const void* data) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(data)) + (uint32_t{1} << 30);
}
// The memory at such an address, or beside it.
OPSMITH_EMULATED_EXPORT char* shared_memory_at(uint64_t address, const char* what, Place place);

// The threads of a warp: 32 as on NVIDIA's GPUs, or 64 as on AMD's Instinct. The runtime is
// compiled for each.
#ifndef OPSMITH_WARP
#define OPSMITH_WARP 32
#endif
static_assert(OPSMITH_WARP == 32 || OPSMITH_WARP == 64, "a warp has 32 or 64 threads");
inline constexpr unsigned int warp_size = OPSMITH_WARP;
// One bit for each lane.
using LaneMask = std::conditional_t<warp_size == 64, uint64_t, unsigned int>;
inline constexpr LaneMask every_lane = ~LaneMask{0};

enum class Vote { none, any, all, count };
OPSMITH_EMULATED_EXPORT int synchronise_block(Vote vote, int predicate, Place place);

// Comes to a barrier of `threads` threads of the block, 0 for all, and waits there, or does not.
OPSMITH_EMULATED_EXPORT void meet_some(uint64_t id, uint64_t threads, bool waits, Place place);

// Waits for the lanes of `mask`, and returns the value that each of them passed. The result is a
// copy of the thread's own, since watched code reads it, and threads may not read the runtime's
// memory. Accesses to memory are ordered only by a barrier, as by `__syncwarp`: CUDA's guide says
// of shuffles, votes and matches that they imply none.
struct Lanes {
  uint64_t values[warp_size];  // by lane
  LaneMask present;            // the lanes that passed a value
  unsigned int lane;           // the caller's own
};
OPSMITH_EMULATED_EXPORT Lanes exchange(LaneMask mask, uint64_t value, const char* what, Place place,
                                       bool orders = false);
// The value of a lane; undefined if the lane passed none.
OPSMITH_EMULATED_EXPORT uint64_t value_of(const Lanes& lanes, unsigned int lane, const char* what,
                                          Place place);
OPSMITH_EMULATED_EXPORT unsigned int lane_number();

// Called before and after an atomic operation; and before an atomicCAS with what it expects.
enum class Scope { block, device };
OPSMITH_EMULATED_EXPORT void atomic_access(void* data, uint64_t bytes, Scope scope, Place place);
OPSMITH_EMULATED_EXPORT void atomic_done(void* data, uint64_t bytes, bool changed, Place place);
OPSMITH_EMULATED_EXPORT void expect(const void* data, uint64_t bytes, const void* expected);
OPSMITH_EMULATED_EXPORT void fence(Scope scope);

// Copies to shared memory when the running thread waits for the copy. `zeros` bytes at the end are
// not read, and set to 0. A wait leaves the copies of that many committed groups under way.
OPSMITH_EMULATED_EXPORT void copy_later(void* to, const void* from, uint64_t bytes, uint64_t zeros);
OPSMITH_EMULATED_EXPORT void commit_copies();
OPSMITH_EMULATED_EXPORT void wait_for_copies(uint64_t groups);
// The same for copies that belong to a stage of a pipeline; any thread may wait for them.
OPSMITH_EMULATED_EXPORT void commit_copies_to(const void* stage);
OPSMITH_EMULATED_EXPORT void wait_for_stage(const void* stage);

// Called before a load that assumes that the kernel does not write the memory.
OPSMITH_EMULATED_EXPORT void read_only_access(const void* data, uint64_t bytes);

// __launch_bounds__: called by each thread.
OPSMITH_EMULATED_EXPORT void check_threads(uint64_t most, Place place = here());
// Called by each function without __device__.
OPSMITH_EMULATED_EXPORT void host_only(const char* name, Place place = here());
// Called by each kernel.
OPSMITH_EMULATED_EXPORT void kernel_only(const char* name, Place place = here());
OPSMITH_EMULATED_EXPORT uint64_t ticks();
[[noreturn]] OPSMITH_EMULATED_EXPORT void fail(const char* text, Place place);

}  // namespace emulated
