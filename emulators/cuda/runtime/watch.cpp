// Checks every access of the kernel's code: that the memory exists, is aligned and was written
// before, and that no other thread accesses it unordered.
//
// Two accesses are ordered by a barrier of the block, by one of the warp, or by fences
// around atomic operations (order.h). So a race is found in whatever order the threads ran.
#include "watch.h"

#include "copies.h"
#include "state.h"

#include <utility>

namespace emulated {

namespace {

constexpr const char* kDevice = "the memory of the device";

Place at(const void* address) { return {nullptr, 0, address}; }

Place at_offset(uint32_t offset) { return at(offset == 0 ? nullptr : state().library + offset); }

uint32_t offset_of(const void* place) {
  const auto offset = static_cast<uint64_t>(static_cast<const char*>(place) - state().library);
  return offset < (uint64_t{1} << 26) ? static_cast<uint32_t>(offset) : 0;
}

uint32_t stamped_thread() {
  const State& s = state();
  return s.block_number * s.threads_of_block + s.current->number;
}

// Whether an access is complete for the running thread, so that no thread can see them reordered.
bool is_ordered(const Stamp& stamp, uint32_t since) {
  const State& s = state();
  if (stamp.time < since) return true;
  // The same as `stamped_thread`, without a division.
  const uint32_t number = stamp.thread - s.block_number * s.threads_of_block;
  const bool same_block = number < s.threads_of_block;
  if (same_block) {
    if (number == s.current->number || stamp.time < s.last_barrier) return true;
    if (number / warp_size == s.current->warp() &&
        stamp.time < s.current->clock[number % warp_size]) {
      return true;
    }
  }
  const Known* known = s.current->known.get();
  return known != nullptr &&
         known->covers(stamp.thread / s.threads_of_block, stamp.thread, stamp.time);
}

// Returns whether two accesses may meet unordered: atomic operations may, as far as their scopes
// reach.
bool may_meet(const Stamp& stamp, Kind kind) {
  const State& s = state();
  const auto other = static_cast<Kind>(stamp.kind);
  if (!is_strong(other) || !is_strong(kind)) return false;
  return (other == Kind::strong && kind == Kind::strong) ||
         stamp.thread / s.threads_of_block == s.block_number;
}

std::string does(bool writes, Kind kind) {
  constexpr const char* reads[] = {"reads", "reads, for its block alone,", "atomically reads",
                                   "reads through __ldg"};
  constexpr const char* written[] = {"writes", "atomically, for its block alone, writes",
                                     "atomically writes", "writes"};
  return (writes ? written : reads)[static_cast<int>(kind)];
}

std::string race_words(const Watched& watched, const Access& one, const Stamp& other,
                       bool other_write) {
  const State& s = state();
  const uint32_t block = other.thread / s.threads_of_block;
  const uint32_t number = other.thread % s.threads_of_block;
  const bool same_block = block == s.block_number;
  const bool same_warp = same_block && number / warp_size == s.current->warp();
  const auto kind = static_cast<Kind>(other.kind);
  const bool scopes = is_strong(kind) && is_strong(one.kind);
  return "a race: " + name_of(*s.current) + " " + does(one.writes(), one.kind) + " " +
         watched.element(one.address) + ", which " + name_of(block, number) + " " +
         does(other_write, kind) + ", with " +
         (s.running->items != 0 ? "no order"
          : same_warp           ? "neither __syncwarp nor __syncthreads"
          : same_block          ? "no __syncthreads"
                                : "no order of these blocks") +
         " between" + (scopes ? ": the scope of such an operation is one block" : "");
}

constexpr const char* kOther = "the other access";

[[noreturn]] void stop_race(const Doubtful& one) {
  if (one.beside) stop("bounds", one.text, one.place);
  stop("race", one.text, one.place, kOther, one.other_place);
}

// Reporting a fault is kept out of the code that every access runs, whose variables then stay in
// registers.
[[gnu::noinline, gnu::cold]] void meet(const Watched& watched, const Access& one,
                                       const Stamp& other, bool other_write) {
  State& s = state();
  const Doubtful race{one.address, one.bytes, race_words(watched, one, other, other_write),
                      at(one.place), at_offset(other.place)};
  if (one.does == Does::writes && one.bytes <= sizeof s.pending->before) {
    // Threads may race to write the same value, so compare after the write.
    if (s.pending.has_value()) return;
    std::memcpy(s.pending.emplace(Pending{race, {}}).before, one.address, one.bytes);
    return;
  }
  const bool is_atomic = is_strong(static_cast<Kind>(other.kind));
  if (one.does == Does::reads && one.kind == Kind::plain && is_atomic && s.doubtful.size() < 8) {
    s.doubtful.push_back(race);
    return;
  }
  stop_race(race);
}

// A cache that is not kept up to date: no order of the accesses helps.
[[noreturn, gnu::noinline, gnu::cold]] void stop_cached(const Watched& watched, const Access& one,
                                                        const Stamp& other) {
  const State& s = state();
  const bool reads = one.does == Does::reads;
  const std::string theirs =
      name_of(other.thread / s.threads_of_block, other.thread % s.threads_of_block);
  stop("race",
       name_of(*s.current) + (reads ? " reads " : " writes ") + watched.element(one.address) +
           (reads ? " through __ldg, and " : ", which ") + theirs +
           (reads ? " writes it in the same launch" : " reads through __ldg in the same launch") +
           ": __ldg is for memory that the kernel does not write",
       at(one.place), kOther, at_offset(other.place));
}

[[gnu::noinline, gnu::cold]] void remark_unwritten(const Watched& watched, const void* address,
                                                   const void* place) {
  State& s = state();
  const bool forbidden = !watched.shared && s.watcher->forbids_unwritten();
  if (s.remarked && !forbidden) return;
  const std::string text =
      name_of(*s.current) + " read " + watched.element(address) + ", which nothing had written";
  if (forbidden) stop("unwritten", text, at(place));
  remark(text, at(place));
}

// Checks the bytes `mask` of one granule.
void look(const Watched& watched, Granule& granule, const Access& one, uint32_t mask) {
  State& s = state();
  const uint32_t since = watched.shared ? s.block_start : s.launch_start;
  const uint32_t known_since = since_when(watched);
  const uint32_t known = granule.known_time >= known_since ? granule.known : 0;
  const bool reads = one.does == Does::reads;
  if (one.does != Does::writes && (known & mask) != mask && !watched.all_known) {
    remark_unwritten(watched, one.address, one.place);
  }
  const Stamp& last = granule.write;
  if (last.time != 0 && (last.bytes & mask) != 0) {
    if (one.kind == Kind::cached && last.time >= s.launched) stop_cached(watched, one, last);
    if (!may_meet(last, one.kind) && !is_ordered(last, since)) meet(watched, one, last, true);
  }
  Stamp stamp{stamped_thread(), s.time, offset_of(one.place), mask,
              static_cast<uint32_t>(one.kind)};
  const auto mine = [&](const Stamp& own) {
    return own.time >= since && own.thread == stamp.thread && own.kind == stamp.kind;
  };
  if (reads) {
    // Bytes that this thread read before it last waited keep their time: others may write them now.
    auto& [first, second] = granule.reads;
    const bool more = mine(first) && first.time != s.time && (first.bytes & ~mask) != 0;
    if (more && mine(second) && second.time != s.time) first = second;
    Stamp& read = more || (first.time >= since && !mine(first)) ? second : first;
    if (mine(read) && read.time == s.time) stamp.bytes |= read.bytes;
    read = stamp;
    return;
  }
  for (const Stamp& read : granule.reads) {
    if (read.time == 0 || (read.bytes & mask) == 0) continue;
    if (read.kind == static_cast<uint32_t>(Kind::cached) && read.time >= s.launched) {
      stop_cached(watched, one, read);
    }
    if (!may_meet(read, one.kind) && !is_ordered(read, since)) meet(watched, one, read, false);
  }
  if (mine(last) && last.time == s.time) stamp.bytes |= last.bytes;
  granule.write = stamp;
  granule.known = known | mask;
  granule.known_time = std::max(known_since, granule.known_time);
}

[[noreturn, gnu::noinline, gnu::cold]] void stop_host(const Watched& watched, const void* address,
                                                      bool write, const void* place) {
  stop("host",
       std::string("the host ") + (write ? "wrote" : "read") + " " + watched.element(address) +
           ", which is in " + kDevice,
       at(place));
}

[[noreturn, gnu::noinline, gnu::cold]] void stop_mutation(const Watched& watched,
                                                          const void* address, const void* place) {
  stop("mutation",
       name_of(*state().current) + " wrote into " + watched.element(address) +
           ", which the operator does not write",
       at(place));
}

// Whether memory is a variable of the running thread, an argument of the kernel, or a variable that
// CUDA declares (threadIdx). Most accesses of a kernel are to such memory.
bool is_own(const void* address) {
  const State& s = state();
  const char* arguments = static_cast<const char*>(s.running->state);
  return s.current->fiber->holds(address) ||
         (s.image.holds(address) && !s.variables_at.holds(address)) ||
         Range{arguments, arguments + s.running->state_bytes}.holds(address);
}

bool is_in_library(const void* address) {
  State& s = state();
  for (const Range& image : s.images) {
    if (!image.holds(address)) continue;
    s.image = image;
    return true;
  }
  return false;
}

// Not inlined, so that accesses which need no check cost little.
[[gnu::noinline]] void access_elsewhere(const void* address, uint64_t bytes, bool write,
                                        const void* place) {
  const State& s = state();
  const Watched* watched = region_near(address);
  if (watched != nullptr) stop_outside(*watched, address, bytes, write, place);
  if (!s.in_device || is_in_library(address)) return;
  char where[32];
  std::snprintf(where, sizeof where, "%p", address);
  const bool null = reinterpret_cast<uintptr_t>(address) < 1 << 16;
  stop("host",
       name_of(*s.current) + (write ? " wrote" : " read") + " memory " +
           (null ? "behind a null pointer" : "of the host") + ", at " + where +
           ": a pointer that device code follows must point to device memory" +
           (null ? "" : ", and `new` and malloc in device code are not emulated"),
       at(place));
}

bool access_shared_word(Access one);

[[gnu::noinline]] void access_region(const Watched& watched, const Access& all) {
  const State& s = state();
  const Region& region = watched.region;
  if (all.address + all.bytes > region.data + region.size) {
    if (access_shared_word(all)) return;
    stop_outside(watched, all.address, all.bytes, all.writes(), all.place);
  }
  if (!s.in_device) stop_host(watched, all.address, all.writes(), all.place);
  // Where only ends run, threads that did not would have written what is read here; a few numbers,
  // such as those of the range check, are written by all.
  const bool is_own = !watched.shared && region.size > 1024 && (!region.written || region.repeats);
  if (s.ends_only && is_own && all.does == Does::reads) state().unsure = true;
  if (region.read_only) {
    if (all.writes()) stop_mutation(watched, all.address, all.place);
    return;
  }
  if (region.vast) return;
  const auto begin = static_cast<uint64_t>(all.address - region.data);
  const uint64_t end = begin + all.bytes;
  Access one = all;
  for (uint64_t offset = begin; offset < end;) {
    const uint64_t start = offset & ~uint64_t{watched.granule - 1};
    const uint64_t next = std::min<uint64_t>(start + watched.granule, end);
    const auto mask = static_cast<uint32_t>(((1u << (next - offset)) - 1) << (offset - start));
    one.address = region.data + offset;
    one.bytes = static_cast<uint32_t>(next - offset);
    look(watched, watched.granule_at(offset), one, mask);
    offset = next;
  }
}

// Takes an access to a word that small elements at an end of a tensor share with what is beside it,
// as where atomicCAS adds halves; returns false for others. An atomicCAS must follow a plain read.
[[gnu::noinline, gnu::cold]] bool access_shared_word(Access one) {
  constexpr uint32_t word = 4;
  const Watched* watched = region_of(one.address);
  if (watched == nullptr) watched = region_of(one.address + word - 1);
  if (watched == nullptr || watched->region.element == 0 || watched->region.element >= word ||
      one.bytes != word || reinterpret_cast<uintptr_t>(one.address) % word != 0) {
    return false;
  }
  const bool plain = one.does == Does::reads && one.kind == Kind::plain;
  if (!plain && one.does != Does::updates) return false;
  if (plain) {
    const std::string text =
        name_of(*state().current) + " read " + watched->outside(one.address, word);
    state().doubtful.push_back({one.address, word, text, at(one.place), {}, true});
  }
  const Region& region = watched->region;
  const char* const end = std::min<const char*>(one.address + word, region.data + region.size);
  one.address = std::max<char*>(one.address, region.data);
  one.bytes = static_cast<uint32_t>(end - one.address);
  access_region(*watched, one);
  return true;
}

void settle_write() {
  const Pending pending = *std::exchange(state().pending, std::nullopt);
  if (std::memcmp(pending.before, pending.address, pending.bytes) != 0) stop_race(pending);
}

}  // namespace

[[gnu::noinline, gnu::cold]] void stop_outside(const Watched& watched, const void* address,
                                               uint64_t bytes, bool write, const void* place) {
  const State& s = state();
  const std::string who = s.in_device ? name_of(*s.current) : "the host";
  stop("bounds", who + (write ? " wrote " : " read ") + watched.outside(address, bytes), at(place));
}

bool access(const Access& one) {
  State& s = state();
  if (s.watcher == nullptr || s.telling) return false;
  if (s.program && !s.in_device) return false;
  if (s.pending.has_value()) settle_write();
  if (s.in_device && is_own(one.address)) return false;
  if (!s.doubtful.empty() && one.writes()) stop_race(s.doubtful.front());
  if (!s.copies.empty()) check_beside_copies(one);
  const Watched* watched = region_of(one.address);
  if (watched == nullptr) {
    if (s.in_device && access_shared_word(one)) return true;
    access_elsewhere(one.address, one.bytes, one.writes(), one.place);
    return false;
  }
  access_region(*watched, one);
  return s.in_device;
}

void settle() {
  if (state().pending.has_value()) settle_write();
  if (!state().doubtful.empty()) stop_race(state().doubtful.front());
}

// --- atomic operations -------------------------------------------------------------------------

namespace {

// Counts what a thread that waits in a loop does, and lets the others of its block run.
void spin(const void* address, uint64_t value, const void* place) {
  constexpr uint32_t turn = 32;
  constexpr uint64_t too_long = 1 << 21;
  State& s = state();
  Thread& thread = *s.current;
  const bool again = thread.spins_at == address && thread.spins_on == value;
  thread.spins_at = address;
  thread.spins_on = value;
  thread.spins = again ? thread.spins + 1 : 0;
  if (!again || thread.spins % turn != 0) return;
  s.spins += turn;
  if (s.spins > too_long) {
    const Watched* watched = region_of(address);
    stop("barrier",
         name_of(thread) + " waits for another value of " +
             (watched != nullptr ? watched->element(address) : std::string("its memory")) +
             ", which no thread of its block changes. CUDA does not promise that another block "
             "runs meanwhile, if it has not begun",
         at(place));
  }
  yield();
}

// Lets others run between two atomic operations of a thread, in some orders. A plain read that an
// atomicCAS has to follow is left beside it.
void interleave() {
  State& s = state();
  if (s.interleaves && s.doubtful.empty() && s.random.below(2) != 0) yield();
}

uint64_t value_at(const void* address, uint64_t bytes) {
  uint64_t value = 0;
  std::memcpy(&value, address, std::min<uint64_t>(bytes, sizeof value));
  return value;
}

}  // namespace

void volatile_access(void* address, uint64_t bytes, bool write, const void* place) {
  State& s = state();
  const bool watches = s.watcher != nullptr && !s.telling && s.in_device;
  if (watches) interleave();  // not later: a read observes what published the value that it loads
  if (watches && !write && !is_own(address) && region_of(address) != nullptr) {
    spin(address, value_at(address, bytes), place);
  }
  const Does does = write ? Does::writes : Does::reads;
  if (!access({static_cast<char*>(address), bytes, does, Kind::strong, place})) return;
  if (write) {
    s.spins = 0;
    publish(address, Scope::device, true);
  } else {
    observe(address, Scope::device);
  }
}

void atomic_access(void* data, uint64_t bytes, Scope scope, Place place) {
  const State& s = state();
  if (reinterpret_cast<uintptr_t>(data) % bytes != 0) {
    stop("alignment",
         "an atomic operation on " + std::to_string(bytes) +
             " bytes at an address that is not a multiple of " + std::to_string(bytes),
         place);
  }
  if (s.watcher == nullptr || s.current == nullptr) return;
  const Kind kind = scope == Scope::block ? Kind::in_block : Kind::strong;
  if (!access({static_cast<char*>(data), bytes, Does::updates, kind, place.address})) return;
  observe(data, scope);
  publish(data, scope, false);
}

void atomic_done(void* data, uint64_t bytes, bool changed, Place place) {
  State& s = state();
  if (s.current == nullptr) return;
  if (changed) {
    s.spins = s.current->spins = 0;
  } else {
    spin(data, value_at(data, bytes), place.address);
  }
  interleave();
}

void expect(const void* data, uint64_t bytes, const void* expected) {
  State& s = state();
  if (s.watcher == nullptr || s.current == nullptr) return;
  if (s.pending.has_value()) settle_write();
  const char* at = static_cast<const char*>(data);
  const char* end = at + bytes;
  const Watched* watched = region_of(at);
  if (watched == nullptr) watched = region_of(end - 1);
  if (watched == nullptr || watched->region.read_only || watched->region.vast) return;
  if (std::memcmp(data, expected, bytes) != 0) return;
  std::erase_if(s.doubtful, [&](const Doubtful& one) {
    return one.address >= at && one.address + one.bytes <= end;
  });
  // The thread has read the value just now: no other ran since.
  const char* const begin = watched->region.data;
  const auto last = static_cast<uint64_t>(std::min(end, begin + watched->region.size) - begin);
  uint64_t offset = static_cast<uint64_t>(std::max(at, begin) - begin) & ~(watched->granule - 1ull);
  for (; offset < last; offset += watched->granule) {
    for (Stamp& read : watched->granule_at(offset).reads) {
      if (read.time >= s.resumed && read.thread == stamped_thread() && read.kind == 0) {
        read.kind = static_cast<uint32_t>(Kind::strong);
      }
    }
  }
}

void read_only_access(const void* data, uint64_t bytes) {
  const void* place = __builtin_return_address(0);
  access({static_cast<char*>(const_cast<void*>(data)), bytes, Does::reads, Kind::cached, place});
}

}  // namespace emulated
