// An NPU's cores as a kernel's library sees them: queues of instructions, what is ordered between
// them, and who accesses which memory. The runtime is a separate library (../../runtime).
//
// An instruction takes effect when it is issued. Each access is compared with the last ones to the
// same bytes: two that conflict are ordered by flags, barriers or queues (vector clocks over the
// queues of a core), or they are a race, whatever the order was in which they ran.
//
// After the documents of Ascend C: 核内同步能力概述, 关键特性说明 (automatic synchronisation).
#pragma once

#include <emulated/runtime.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

namespace emulated::npu {

inline constexpr uint64_t unified_buffer = 192 << 10;  // bytes of a core's, on Atlas A2
inline constexpr uint64_t block_bytes = 32;            // the unit of copies, and of alignment
inline constexpr uint64_t repeat_bytes = 256;          // what a vector instruction takes at a time
inline constexpr uint32_t most_cores = 48;             // vector cores of an Atlas A2, or fewer

// Faults, as the checks know them.
inline constexpr char race[] = "npu-race", order[] = "npu-order", queue[] = "npu-queue",
                      parameter[] = "npu-parameter", bounds[] = "bounds",
                      absent[] = "absent";  // what is not emulated, and no fault

// The scalar unit, the vector unit, and the units that copy into and out of the unified buffer.
enum class Queue : uint8_t { S, V, MTE2, MTE3 };
inline constexpr uint32_t queues = 4;
inline const char* name_of(Queue queue) {
  constexpr const char* names[] = {"S", "V", "MTE2", "MTE3"};
  return names[static_cast<uint32_t>(queue)];
}

// Of each queue, how many of its first instructions are complete.
using Clock = std::array<uint32_t, queues>;

// Memory of the unified buffer that TPipe::InitBuffer gave to a TQue or a TBuf.
struct Buffer {
  enum class State : uint8_t { free, allocated, queued, taken, lent };  // lent: a TBuf's

  const void* owner;
  const char* position;  // "VECIN"
  Place place;           // of InitBuffer
  char* data;
  uint64_t size;
  State state;
  // What is complete for whoever takes it next: out of the queue, or from FreeTensor.
  Clock queued{}, freed{};
};

// Issues an instruction, to which the accesses that follow belong.
OPSMITH_EMULATED_EXPORT void issue(Queue queue, const char* name, Place place);
// Accesses memory of the unified buffer, or global memory.
OPSMITH_EMULATED_EXPORT void access(const Buffer* buffer, const void* data, uint64_t bytes,
                                    bool writes);
inline void reads(const Buffer* buffer, const void* data, uint64_t bytes) {
  access(buffer, data, bytes, false);
}
inline void writes(const Buffer* buffer, const void* data, uint64_t bytes) {
  access(buffer, data, bytes, true);
}
// Ends the call, where the instruction that was issued last breaks a rule.
[[noreturn]] OPSMITH_EMULATED_EXPORT void refuse(const char* kind, const std::string& text);
// Says what may explain a wrong result.
OPSMITH_EMULATED_EXPORT void suspect(const std::string& text);
inline void require(bool holds, const char* kind, const std::string& text) {
  if (!holds) refuse(kind, text);
}

OPSMITH_EMULATED_EXPORT void set_flag(Queue from, Queue to, int32_t id);
OPSMITH_EMULATED_EXPORT void wait_flag(Queue from, Queue to, int32_t id);
OPSMITH_EMULATED_EXPORT Clock complete(Queue queue);  // at the end of what is issued
OPSMITH_EMULATED_EXPORT void wait_for(Queue queue, const Clock& clock);
OPSMITH_EMULATED_EXPORT void barrier(Queue queue);
OPSMITH_EMULATED_EXPORT void barrier_of_all();

// What one block tells another: the instruction, its number, and the two blocks.
using Signal = std::tuple<const char*, uint16_t, uint32_t, uint32_t>;
// Sends signals behind what is complete.
OPSMITH_EMULATED_EXPORT void send(const std::vector<Signal>& signals, const Clock& done);
// Has the instructions of a block that follow wait for one signal of each kind.
OPSMITH_EMULATED_EXPORT void receive(std::vector<Signal> signals);

OPSMITH_EMULATED_EXPORT Buffer& new_buffer(const void* owner, const char* position, uint64_t bytes,
                                           Place place);
OPSMITH_EMULATED_EXPORT void forget_buffers();
// The buffer that has an address.
OPSMITH_EMULATED_EXPORT Buffer& buffer_with(uint64_t address);

inline uint64_t rounded_up(uint64_t bytes) { return (bytes + 31) / block_bytes * block_bytes; }
template <typename T>
void require_aligned(const T* at, uint64_t bytes, const char* what) {
  require(reinterpret_cast<uintptr_t>(at) % bytes == 0, parameter,
          std::string("has ") + what + " at an address that is no multiple of " +
              std::to_string(bytes) + " bytes");
}

// What a copy into global memory does to it.
enum class Atomic : uint8_t { none, add, max, min };
// What instructions read besides their arguments.
struct Registers {
  Atomic atomic = Atomic::none;
  // The elements of a repeat that take part; in counter mode the first number says how many of all.
  std::array<uint64_t, 2> mask{~uint64_t{0}, ~uint64_t{0}};
  bool counter_mode = false;
  float scale = std::numeric_limits<float>::quiet_NaN();  // of SetDeqScale
  std::array<uint16_t, 4> merged{};  // of each list, how many pairs the last MrgSort took
  void* pipe = nullptr;              // the core's TPipe
  bool scheduler = true;             // whether the kernel's type starts what orders blocks
};
OPSMITH_EMULATED_EXPORT Registers& registers();

OPSMITH_EMULATED_EXPORT uint32_t block_index();
OPSMITH_EMULATED_EXPORT uint32_t block_count();

struct Launch {
  uint32_t blocks;
  const char* kernel;
  bool default_stream;
  bool orders;  // whether the compiler orders accesses of the scalar and the vector unit
  Place place;
  void (*run)(void* state);
  void* state;
};
OPSMITH_EMULATED_EXPORT void launch(const Launch& launch);

}  // namespace emulated::npu
