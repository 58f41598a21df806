// Runs the blocks of a launch, each on a core of its own, and watches their accesses.
#include <ascendc/machine.h>

#include <map>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "state.h"

namespace emulated::npu {

namespace {

// An instruction that was issued.
struct Issued {
  uint32_t core, time;  // the time within its queue
  Queue queue;
  Atomic atomic;
  const char* name;
  Place place;
  Clock known;  // what was complete before it
};

// The last accesses to a byte, as numbers of instructions.
struct LocalByte {
  uint32_t write, reads[queues];
};
struct GlobalByte {
  uint32_t write, reads[2];
};

// A flag that was set, and nobody waited for.
struct Flag {
  Clock clock;
  Place place;
};
using FlagName = std::tuple<Queue, Queue, int32_t>;

void run_core();

struct Core {
  uint32_t number;
  Fiber fiber;
  std::array<Clock, queues> known{};  // by queue: what is complete before its next instruction
  Clock issued{};
  Guarded memory{unified_buffer, repeat_bytes, state().fill};
  Pages shadow{unified_buffer * sizeof(LocalByte)};
  std::deque<Buffer> buffers;
  uint64_t used = 0;
  std::map<FlagName, Flag> flags;
  std::optional<std::pair<FlagName, Issued>> early;  // a wait for what was not set before
  Registers registers;
  bool ended = false;
  std::vector<Clock> heard;  // by core: what is complete before its next instruction
  std::vector<Signal> waits_for;
  Issued waits;  // the instruction that waits

  explicit Core(uint32_t its_number) : number(its_number), fiber(run_core, its_number) {}
};

// How far a core was, and those that it had heard of, when it sent a signal.
struct Sent {
  std::shared_ptr<const std::vector<Clock>> heard;
  Place place;
};

struct Machine {
  const Launch* launch = nullptr;
  Core* core = nullptr;  // the one that runs
  Context scheduler;
  std::vector<Issued> issued;
  std::unordered_map<const Watched*, Pages> global;
  std::map<Signal, std::deque<Sent>> sent;  // that nobody waited for yet
  std::string failure;                      // of a call without a watcher
};
Machine machine;

Core& here() { return *machine.core; }
const Issued& now() { return machine.issued.back(); }

std::string who(const Issued& one) {
  return std::string(one.name) + " (" + name_of(one.queue) + " of block " +
         std::to_string(one.core) + ")";
}

void run_core() {
  try {
    machine.launch->run(machine.launch->state);
  } catch (const std::exception& error) {
    machine.failure = error.what();
  }
  here().ended = true;
  here().fiber.switch_to(machine.scheduler);
}

void join(Clock& clock, const Clock& other) {
  for (uint32_t i = 0; i < queues; ++i) clock[i] = std::max(clock[i], other[i]);
}

std::string shown(const FlagName& name) {
  const auto [from, to, id] = name;
  return std::string("<") + name_of(from) + "_" + name_of(to) + ">(" + std::to_string(id) + ")";
}
std::string who_waits(const Core& core) {
  return who(core.early->second) + " waits for the flag " + shown(core.early->first) + ", which ";
}
void check_flag(int32_t id) {
  const std::string text = "has the event " + std::to_string(id) + "; there are 0 to 7";
  require(id >= 0 && id < 8, parameter, text);
}
[[noreturn]] void stop_early(const Core& core) {
  stop(order, who_waits(core) + "no SetFlag sets", core.early->second.place);
}

}  // namespace

void refuse(const char* kind, const std::string& text) {
  if (here().early) stop_early(here());
  stop(kind, who(now()) + " " + text, now().place);
}

void suspect(const std::string& text) { remark(who(now()) + " " + text, now().place); }

// --- order -------------------------------------------------------------------------------------

void issue(Queue queue, const char* name, Place place) {
  Core& core = here();
  const auto own = static_cast<uint32_t>(queue);
  Clock& known = core.known[own];
  // The scalar unit issues it after what it has waited for, but its own writes may be late.
  Clock before = core.known[static_cast<uint32_t>(Queue::S)];
  before[static_cast<uint32_t>(Queue::S)] = 0;
  join(known, before);
  if (queue == Queue::S) known[own] = core.issued[own];
  if (machine.issued.empty()) machine.issued.emplace_back();  // number 0: none
  machine.issued.push_back(
      {core.number, ++core.issued[own], queue, core.registers.atomic, name, place, known});
}

Clock complete(Queue queue) {
  const auto own = static_cast<uint32_t>(queue);
  Clock clock = here().known[own];
  clock[own] = here().issued[own];
  return clock;
}

void wait_for(Queue queue, const Clock& clock) {
  join(here().known[static_cast<uint32_t>(queue)], clock);
}

void barrier(Queue queue) { wait_for(queue, complete(queue)); }

void barrier_of_all() {
  for (Clock& known : here().known) known = here().issued;
}

void set_flag(Queue from, Queue to, int32_t id) {
  check_flag(id);
  Core& core = here();
  const FlagName name{from, to, id};
  if (core.early && core.early->first == name) {
    stop(absent, who_waits(core) + "opsmith emulates behind its SetFlag alone",
         core.early->second.place, "the SetFlag", now().place);
  }
  const auto [at, added] = core.flags.try_emplace(name, Flag{complete(from), now().place});
  if (added) return;
  stop(order,
       "block " + std::to_string(core.number) + " sets the flag " + shown(name) +
           " twice, with no WaitFlag between",
       now().place, "the first SetFlag", at->second.place);
}

void wait_flag(Queue from, Queue to, int32_t id) {
  check_flag(id);
  Core& core = here();
  const auto found = core.flags.find({from, to, id});
  if (found == core.flags.end()) {
    // On an NPU its queue alone waits. What follows shows whether there is a SetFlag at all.
    if (!core.early) core.early.emplace(FlagName{from, to, id}, now());
    return;
  }
  wait_for(to, found->second.clock);
  core.flags.erase(found);
}

void send(const std::vector<Signal>& signals, const Clock& done) {
  std::vector<Clock> heard = here().heard;
  heard.resize(block_count());
  join(heard[here().number], done);
  const Sent sent{std::make_shared<const std::vector<Clock>>(std::move(heard)), now().place};
  for (const Signal& signal : signals) machine.sent[signal].push_back(sent);
}

void receive(std::vector<Signal> signals) {
  Core& core = here();
  core.waits = now();
  core.waits_for = std::move(signals);
  core.fiber.switch_to(machine.scheduler);
  core.heard.resize(block_count());
  for (const Signal& signal : core.waits_for) {
    std::deque<Sent>& sent = machine.sent[signal];
    for (uint32_t i = 0; i < block_count(); ++i) join(core.heard[i], (*sent.front().heard)[i]);
    sent.pop_front();
  }
  for (Clock& known : core.known) join(known, core.heard[core.number]);
}

// --- accesses ------------------------------------------------------------------------------------

namespace {

bool is_ordered(const Issued& before) {
  Core& core = here();
  if (core.early) return true;  // what nothing orders follows from that
  if (before.core != core.number) {
    const auto queue = static_cast<uint32_t>(before.queue);
    return !core.heard.empty() && core.heard[before.core][queue] >= before.time;
  }
  const Queue queue = now().queue;
  Clock& known = core.known[static_cast<uint32_t>(queue)];
  if (known[static_cast<uint32_t>(before.queue)] >= before.time) return true;
  const bool scalar = queue == Queue::S || before.queue == Queue::S;
  const bool vector = queue == Queue::V && before.queue == Queue::V;
  if (!machine.launch->orders || !(scalar || vector)) return false;
  join(known, before.known);  // whoever waits for it has waited for that too
  known[static_cast<uint32_t>(before.queue)] = before.time;
  return true;
}

std::string remedy(const Issued& before) {
  const Queue queue = now().queue;
  if (before.core != now().core) return "SyncAll(), or a flag between blocks, orders them";
  if (before.queue == queue) {
    return std::string("PipeBarrier<PIPE_") + name_of(queue) +
           ">() orders instructions of one queue";
  }
  const std::string event = std::string(name_of(before.queue)) + "_" + name_of(queue);
  return "EnQue and DeQue, or AllocTensor and FreeTensor, of a TQue order them, or SetFlag and "
         "WaitFlag<HardEvent::" +
         event + ">";
}

// Whether an access races with an earlier one, by its number.
bool races(uint32_t number, bool wrote, bool writes) {
  if (number == 0 || number + 1 == machine.issued.size()) return false;
  const Issued& before = machine.issued[number];
  const bool both_atomic = before.atomic != Atomic::none && before.atomic == now().atomic &&
                           before.queue == Queue::MTE3 && now().queue == Queue::MTE3;
  return !(both_atomic && wrote && writes) && !is_ordered(before);
}

[[noreturn]] void stop_race(uint32_t number, bool wrote, bool writes, const std::string& what) {
  const Issued& before = machine.issued[number];
  stop(race,
       "a race: " + who(now()) + (writes ? " writes " : " reads ") + what + ", which " +
           who(before) + (wrote ? " writes" : " reads") +
           ", with no order between: " + remedy(before),
       now().place, "the other access", before.place);
}

// Compares an access to a byte with the last ones, and returns whether it is the first read of what
// nothing had written. A read is told before the write that it read: whoever waits for the one has
// waited for both.
template <typename Byte, typename Name>
bool look(Byte& byte, bool writes, Name name) {
  for (uint32_t& read : byte.reads) {
    if (!writes) break;
    if (races(read, false, writes)) stop_race(read, false, writes, name());
    read = 0;
  }
  if (races(byte.write, true, writes)) stop_race(byte.write, true, writes, name());
  const bool unwritten = byte.write == 0 && !state().remarked;
  if (writes) byte.write = static_cast<uint32_t>(machine.issued.size() - 1);
  return unwritten;
}

std::string element_of(const Buffer& buffer, const char* at) {
  return "byte " + std::to_string(at - buffer.data) + " of a buffer of " + buffer.position +
         " (InitBuffer at line " + std::to_string(buffer.place.line) + ", " +
         std::to_string(buffer.size) + " bytes)";
}

void access_local(const Buffer& buffer, const char* at, uint64_t bytes, bool writes) {
  require(buffer.state != Buffer::State::free, queue,
          "uses a tensor after its FreeTensor: " + element_of(buffer, at));
  if (at < buffer.data || at + bytes > buffer.data + buffer.size) {
    const char* first =
        at < buffer.data ? at : std::max<const char*>(at, buffer.data + buffer.size);
    refuse(bounds, std::string(writes ? "writes" : "reads") +
                       " beside its memory: " + element_of(buffer, first));
  }
  Core& core = here();
  auto* byte = reinterpret_cast<LocalByte*>(core.shadow.data()) + (at - core.memory.data());
  for (const char* end = at + bytes; at < end; ++at, ++byte) {
    const bool unwritten = look(*byte, writes, [&] { return element_of(buffer, at); });
    if (writes) continue;
    if (unwritten) suspect("reads " + element_of(buffer, at) + ", which nothing had written");
    byte->reads[static_cast<uint32_t>(now().queue)] =
        static_cast<uint32_t>(machine.issued.size() - 1);
  }
}

// The scalar unit writes by way of its core's cache, whose lines of 64 bytes go back whole.
void check_line(const Watched& watched, const GlobalByte* bytes, uint64_t offset) {
  constexpr uint64_t line = 64;
  const uint64_t begin = offset / line * line, end = std::min(begin + line, watched.region.size);
  for (uint64_t i = begin; i < end; ++i) {
    const Issued& before = machine.issued[bytes[i].write];
    if (bytes[i].write == 0 || before.queue != Queue::S || is_ordered(before)) continue;
    stop(race,
         "a race: " + who(now()) + " writes " + watched.element(watched.region.data + offset) +
             " into a cache line of 64 bytes, into which " + who(before) + " writes " +
             watched.element(watched.region.data + i) + ": the line that goes back last stays",
         now().place, "the other access", before.place);
  }
}

void access_global(const char* at, uint64_t bytes, bool writes) {
  if (state().watcher == nullptr) return;
  Watched* watched = region_of(at);
  if (watched == nullptr || at + bytes > watched->region.data + watched->region.size) {
    if (watched == nullptr) watched = region_near(at);
    if (watched == nullptr) {
      refuse(bounds,
             std::string(writes ? "writes" : "reads") + " global memory that nothing allocated");
    }
    refuse(bounds, std::string(writes ? "writes " : "reads ") + watched->outside(at, bytes));
  }
  const Region& region = watched->region;
  if (region.read_only) {
    require(!writes, "mutation",
            "writes " + watched->element(at) + ", which the operator does not write");
    return;
  }
  Pages& shadow =
      machine.global.try_emplace(watched, region.size * sizeof(GlobalByte)).first->second;
  auto* byte = reinterpret_cast<GlobalByte*>(shadow.data()) + (at - region.data);
  if (writes && now().queue == Queue::S) {
    const auto offset = static_cast<uint64_t>(at - region.data);
    check_line(*watched, byte - offset, offset);
  }
  const bool adds = writes && now().atomic != Atomic::none;
  for (const char* end = at + bytes; at < end; ++at, ++byte) {
    const bool unwritten = look(*byte, writes, [&] { return watched->element(at); });
    if (unwritten && !region.written && (!writes || adds)) {
      suspect(std::string(adds ? "adds to " : "reads ") + watched->element(at) +
              ", which nothing had written");
    }
    if (writes) continue;
    // One place for reads of this queue, and one for the last read of any other.
    const Issued& first = machine.issued[byte->reads[0]];
    const bool own =
        byte->reads[0] == 0 || (first.core == now().core && first.queue == now().queue);
    byte->reads[own ? 0 : 1] = static_cast<uint32_t>(machine.issued.size() - 1);
  }
}

}  // namespace

void access(const Buffer* buffer, const void* data, uint64_t bytes, bool writes) {
  const auto at = static_cast<const char*>(data);
  if (buffer != nullptr) {
    access_local(*buffer, at, bytes, writes);
  } else {
    access_global(at, bytes, writes);
  }
}

// --- buffers -------------------------------------------------------------------------------------

Buffer& new_buffer(const void* owner, const char* position, uint64_t bytes, Place place) {
  Core& core = here();
  issue(Queue::S, "InitBuffer", place);
  const uint64_t size = (bytes + block_bytes - 1) / block_bytes * block_bytes;
  require(core.used + size <= unified_buffer, queue,
          "asks for " + std::to_string(size) + " bytes of the unified buffer, which has " +
              std::to_string(unified_buffer) + ", " + std::to_string(core.used) +
              " of them in use");
  require(core.buffers.size() < 64, queue, "makes more than 64 buffers");
  core.used += size;
  return core.buffers.emplace_back(
      Buffer{owner, position, place, core.memory.data() + core.used - size, size, {}});
}

void forget_buffers() {
  barrier_of_all();
  here().used = 0;
  here().buffers.clear();
}

Buffer& buffer_with(uint64_t address) {
  for (Buffer& one : here().buffers) {
    const auto begin = reinterpret_cast<uint64_t>(one.data);
    if (begin <= address && address < begin + one.size) return one;
  }
  refuse(bounds, "has an address that is in no buffer");
}

Registers& registers() { return here().registers; }
uint32_t block_index() { return here().number; }
uint32_t block_count() { return machine.launch->blocks; }

// --- launches ----------------------------------------------------------------------------------

namespace {

void check_end(const Core& core) {
  if (core.early) stop_early(core);
  const std::string block = "block " + std::to_string(core.number);
  for (const auto& [name, flag] : core.flags) {
    stop(order, block + " ends, and nothing waited for the flag " + shown(name), flag.place);
  }
  if (core.registers.atomic != Atomic::none) {
    stop(order, block + " ends with copies still atomic: SetAtomicNone() belongs behind them",
         machine.launch->place);
  }
}

// Runs a core until it ends or waits for the others.
void resume(std::unique_ptr<Core>& core) {
  machine.core = core.get();
  machine.scheduler.switch_to(core->fiber);
  machine.core = nullptr;
  if (!machine.failure.empty()) throw std::runtime_error(std::exchange(machine.failure, {}));
  if (!core->ended) return;
  check_end(*core);
  core.reset();
}

std::string shown(const Signal& signal) {
  const auto& [name, id, from, to] = signal;
  return std::string(name) + " of block " + std::to_string(from);
}
bool is_sent(const Signal& signal) { return !machine.sent[signal].empty(); }

bool may_go(const std::unique_ptr<Core>& core) {
  return std::all_of(core->waits_for.begin(), core->waits_for.end(), is_sent);
}

[[noreturn]] void stop_waiting(const Core& core) {
  const auto missing = std::find_if_not(core.waits_for.begin(), core.waits_for.end(), is_sent);
  stop(order, who(core.waits) + " waits for ever: there is no " + shown(*missing),
       core.waits.place);
}

void check(const Launch& launch) {
  const std::string what = std::string("the launch of ") + launch.kernel + " is refused: ";
  if (launch.blocks == 0 || launch.blocks > 65535) {
    stop("npu-launch",
         what + "it has " + std::to_string(launch.blocks) +
             " blocks; expected 1 to 65535: return early where there is nothing to do",
         launch.place);
  }
  if (launch.default_stream && state().watcher != nullptr) {
    stop("npu-launch",
         what + "it is on no stream: pass opsmith::npu_stream(ctx) as the third of <<<…>>>",
         launch.place);
  }
}

}  // namespace

void launch(const Launch& launch) {
  State& s = state();
  check(launch);
  if (s.launches_only) return;
  take_regions();
  machine.launch = &launch;
  machine.issued.clear();
  machine.global.clear();
  machine.sent.clear();
  std::vector<uint32_t> numbers(launch.blocks);
  std::iota(numbers.begin(), numbers.end(), 0u);
  s.random.shuffle(numbers);
  std::vector<std::unique_ptr<Core>> waiting;
  for (const uint32_t number : numbers) {
    auto core = std::make_unique<Core>(number);
    resume(core);
    if (core != nullptr) waiting.push_back(std::move(core));
  }
  while (!waiting.empty()) {
    if (std::none_of(waiting.begin(), waiting.end(), may_go)) stop_waiting(*waiting[0]);
    for (auto& core : waiting) {
      if (may_go(core)) resume(core);
    }
    std::erase(waiting, nullptr);
  }
  for (const auto& [signal, sent] : machine.sent) {
    if (sent.empty()) continue;
    stop(order, "the kernel ends, and nothing waited for " + shown(signal), sent.front().place);
  }
  machine.launch = nullptr;
}

}  // namespace emulated::npu
