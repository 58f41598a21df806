// Checks every access of the kernel's code: that the memory exists, is aligned and was written
// before, and that no other thread accesses it unordered.
//
// Two accesses are ordered by a barrier of the block, by an exchange of the warp, or by a fence and
// an atomic operation between them. So a race is found in whatever order the threads ran.
#include "watch.h"

#include "state.h"

namespace opsmith::emulated {

namespace {

constexpr const char* kDevice = "the memory of the device";

Place at(const void* address) { return {nullptr, 0, address}; }

Place at_offset(uint32_t offset) { return at(offset == 0 ? nullptr : state().library + offset); }

uint32_t offset_of(const void* place) {
  const auto offset = static_cast<uint64_t>(static_cast<const char*>(place) - state().library);
  return offset < (uint64_t{1} << 27) ? static_cast<uint32_t>(offset) : 0;
}

uint32_t stamped_thread() {
  const State& s = state();
  return s.block_number * s.threads_of_block + s.current->number;
}

// Whether an access is complete for the running thread, so that no thread can see them reordered.
bool is_ordered(const Stamp& stamp, uint32_t since) {
  const State& s = state();
  if (stamp.time < since) return true;
  if (stamp.time < s.current->acquired) return true;
  // The same as `stamped_thread`, without a division.
  const uint32_t number = stamp.thread - s.block_number * s.threads_of_block;
  if (number >= s.threads_of_block) return false;  // of another block
  if (number == s.current->number || stamp.time < s.last_barrier) return true;
  return number / warp_size == s.current->warp() &&
         stamp.time < s.current->clock[number % warp_size];
}

struct Words {
  std::string text, also;
};

Words race_words(const Watched& watched, const void* address, bool write, bool atomic,
                 const Stamp& other, bool other_write) {
  const State& s = state();
  const uint32_t block = other.thread / s.threads_of_block;
  const uint32_t number = other.thread % s.threads_of_block;
  const bool same_block = block == s.block_number;
  const bool same_warp = same_block && number / warp_size == s.current->warp();
  const auto does = [](bool writes, bool atomically) {
    return std::string(writes ? (atomically ? "atomically writes" : "writes") : "reads");
  };
  const std::string theirs = name_of(block, number);
  return {"a race: " + name_of(*s.current) + " " + does(write, atomic) + " " +
              watched.element(address) + ", which " + theirs + " " +
              does(other_write, other.atomic != 0) + ", with " +
              (same_warp    ? "neither __syncwarp nor __syncthreads"
               : same_block ? "no __syncthreads"
                            : "no order of these blocks") +
              " between",
          "the other access"};
}

// Reporting a fault is kept out of the code that every access runs, whose variables then stay in
// registers.
[[gnu::noinline, gnu::cold]] void meet(const Watched& watched, char* address, uint32_t bytes,
                                       bool write, bool atomic, const void* place,
                                       const Stamp& other, bool other_write) {
  State& s = state();
  const Words words = race_words(watched, address, write, atomic, other, other_write);
  if (write && !atomic && bytes <= sizeof s.pending.before) {
    // Threads may race to write the same value, so compare after the write.
    if (s.pending.active) return;
    s.pending.active = true;
    s.pending.address = address;
    s.pending.bytes = bytes;
    std::memcpy(s.pending.before, address, bytes);
    s.pending.text = words.text;
    s.pending.also = words.also;
    s.pending.place = at(place);
    s.pending.also_place = at_offset(other.place);
    return;
  }
  stop("race", words.text, at(place), words.also, at_offset(other.place));
}

[[gnu::noinline, gnu::cold]] void remark_unwritten(const Watched& watched, const void* address,
                                                   const void* place) {
  if (state().remarked) return;
  remark(name_of(*state().current) + " read " + watched.element(address) +
             ", which nothing had written",
         at(place));
}

// Checks the bytes `mask` of one granule.
void look(const Watched& watched, Granule& granule, char* address, uint32_t bytes, uint32_t mask,
          bool write, bool atomic, const void* place) {
  State& s = state();
  const uint32_t since = watched.shared ? s.block_start : s.launch_start;
  const uint32_t known_since = since_when(watched);
  const uint32_t known = granule.known_time >= known_since ? granule.known : 0;
  if ((!write || atomic) && (known & mask) != mask) remark_unwritten(watched, address, place);
  const Stamp& last = granule.write;
  if (last.time != 0 && (last.bytes & mask) != 0 && !(atomic && last.atomic) &&
      !is_ordered(last, since)) {
    meet(watched, address, bytes, write, atomic, place, last, true);
  }
  const uint32_t me = stamped_thread();
  Stamp stamp;
  stamp.thread = me;
  stamp.time = s.time;
  stamp.place = offset_of(place);
  stamp.bytes = mask;
  stamp.atomic = atomic ? 1 : 0;
  if (!write) {
    Stamp& first = granule.reads[0];
    const bool free = first.time < since || first.thread == me;
    if (free && first.time >= since) stamp.bytes |= first.bytes;
    granule.reads[free ? 0 : 1] = stamp;
    return;
  }
  for (const Stamp& read : granule.reads) {
    if (read.time != 0 && (read.bytes & mask) != 0 && !is_ordered(read, since)) {
      meet(watched, address, bytes, write, atomic, place, read, false);
    }
  }
  if (last.time >= since && last.thread == me && (last.atomic != 0) == atomic &&
      last.time == s.time) {
    stamp.bytes |= last.bytes;
  }
  granule.write = stamp;
  granule.known = known | mask;
  granule.known_time = std::max(known_since, granule.known_time);
}

[[noreturn, gnu::noinline, gnu::cold]] void stop_outside(const Watched& watched,
                                                         const void* address, uint64_t bytes,
                                                         bool write, const void* place) {
  const State& s = state();
  const std::string who = s.in_device ? name_of(*s.current) : "the host";
  stop("bounds", who + (write ? " wrote " : " read ") + watched.outside(address, bytes), at(place));
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
  return s.current->fiber->holds(address) || s.image.holds(address) ||
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
  stop("host",
       name_of(*s.current) + (write ? " wrote" : " read") + " memory of the host, at " + where +
           ": a pointer that device code follows must point to device memory",
       at(place));
}

[[gnu::noinline]] void access_region(const Watched& watched, char* data, uint64_t bytes, bool write,
                                     bool atomic, const void* place) {
  const State& s = state();
  const Region& region = watched.region;
  if (data + bytes > region.data + region.size) {
    stop_outside(watched, data, bytes, write, place);
  }
  if (!s.in_device) stop_host(watched, data, write, place);
  if (region.read_only) {
    if (write) stop_mutation(watched, data, place);
    return;
  }
  const auto begin = static_cast<uint64_t>(data - region.data);
  const uint64_t end = begin + bytes;
  for (uint64_t offset = begin; offset < end;) {
    const uint64_t start = offset & ~uint64_t{watched.granule - 1};
    const uint64_t next = std::min<uint64_t>(start + watched.granule, end);
    const auto mask = static_cast<uint32_t>(((1u << (next - offset)) - 1) << (offset - start));
    look(watched, watched.granule_at(offset), region.data + offset,
         static_cast<uint32_t>(next - offset), mask, write, atomic, place);
    offset = next;
  }
}

}  // namespace

uint32_t since_when(const Watched& watched) { return watched.shared ? state().block_start : 1; }

void access(void* address, uint64_t bytes, bool write, bool atomic, const void* place) {
  State& s = state();
  if (s.watcher == nullptr || s.telling) return;
  if (s.pending.active) settle();
  if (s.in_device && is_own(address)) return;
  const Watched* watched = region_of(address);
  if (watched == nullptr) {
    access_elsewhere(address, bytes, write, place);
  } else {
    access_region(*watched, static_cast<char*>(address), bytes, write, atomic, place);
  }
}

void settle() {
  State& s = state();
  if (!s.pending.active) return;
  s.pending.active = false;
  const Pending& pending = s.pending;
  if (std::memcmp(pending.before, pending.address, pending.bytes) == 0) return;
  stop("race", pending.text, pending.place, pending.also, pending.also_place);
}

// --- memory ------------------------------------------------------------------------------------

Watched* region_of(const void* address) {
  State& s = state();
  Watched*& found = s.found.at(address);
  if (found != nullptr && found->holds(address)) return found;
  for (auto* list : {&s.shared, &s.regions}) {
    for (Watched& watched : *list) {
      if (!watched.holds(address)) continue;
      found = &watched;
      return found;
    }
  }
  return nullptr;
}

Watched* region_near(const void* address) {
  State& s = state();
  for (auto* list : {&s.shared, &s.regions}) {
    for (Watched& watched : *list) {
      if (watched.near(address)) return &watched;
    }
  }
  return nullptr;
}

void prepare(Watched& watched) {
  if (watched.region.written) mark_written(watched, watched.region.data, watched.region.size);
}

void mark_written(Watched& watched, const void* data, uint64_t bytes) {
  const State& s = state();
  if (watched.region.read_only) return;
  const auto begin = static_cast<uint64_t>(static_cast<const char*>(data) - watched.region.data);
  for (uint64_t offset = begin; offset < begin + bytes; ++offset) {
    Granule& granule = watched.granule_at(offset);
    const uint32_t since = since_when(watched);
    if (granule.known_time < since) granule.known = 0;
    granule.known |= 1u << (offset % watched.granule);
    granule.known_time = s.time;
  }
}

void take_regions() {
  State& s = state();
  if (s.watcher == nullptr) return;
  const uint64_t count = s.watcher->region_count();
  for (; s.regions_taken < count; ++s.regions_taken) {
    prepare(s.regions.emplace_back(s.watcher->region(s.regions_taken), false));
  }
}

namespace {

Watched& share(const char* name, uint64_t size, uint64_t alignment, uint64_t element, Place place) {
  State& s = state();
  auto memory = std::make_unique<Guarded>(size, alignment);
  Region region;
  const std::string full = std::string("shared memory '") + name + "'";
  region.name = full.c_str();
  region.data = memory->data();
  region.size = size;
  region.element = element;
  region.guard = Guarded::guard;
  Watched& watched = s.shared.emplace_back(region, true);
  watched.region.name = watched.name.c_str();
  watched.own = std::move(memory);
  (void)place;
  return watched;
}

}  // namespace

char* shared_memory(Variable& variable, Place place) {
  State& s = state();
  if (s.current == nullptr) stop("host", "shared memory is used by host code", place);
  if (variable.block == s.blocks_run) return variable.data;
  Watched*& watched = s.variables[&variable];
  if (watched == nullptr) {
    watched = &share(variable.name, variable.size, variable.alignment, variable.element, place);
  }
  s.shared_bytes += variable.size;
  if (s.shared_bytes > 48 << 10) {
    stop("launch",
         "a block declares " + std::to_string(s.shared_bytes) +
             " bytes of shared memory, and 49152 are the most; more is to be had as dynamic shared "
             "memory",
         place);
  }
  variable.data = watched->region.data;
  variable.block = s.blocks_run;
  std::memset(variable.data, s.fill, variable.size);
  return variable.data;
}

char* dynamic_shared_memory(const char* name, Place place) {
  static uint64_t prepared = 0;
  State& s = state();
  if (s.current == nullptr) stop("host", "shared memory is used by host code", place);
  if (s.dynamic == nullptr) {
    // The content is up to the kernel: accesses are distinguished by granules of four bytes.
    s.dynamic = &share(name, s.running->shared_bytes, 16, 4, place);
    prepared = 0;
  }
  if (prepared != s.blocks_run) {
    prepared = s.blocks_run;
    std::memset(s.dynamic->region.data, s.fill, s.dynamic->region.size);
  }
  return s.dynamic->region.data;
}

uint64_t dynamic_shared_bytes() {
  return state().running != nullptr ? state().running->shared_bytes : 0;
}

void* allocate(uint64_t bytes) {
  State& s = state();
  auto memory = std::make_unique<Guarded>(bytes, 256);
  Region region;
  region.name = "memory of cudaMalloc";
  region.data = memory->data();
  region.size = bytes;
  region.element = 1;
  region.guard = Guarded::guard;
  std::memset(region.data, s.fill, bytes);
  Watched& watched = s.regions.emplace_back(region, false);
  watched.own = std::move(memory);
  return watched.region.data;
}

void release(void* data) {
  // A later access is reported as one to memory that was freed.
  for (Watched& watched : state().regions) {
    if (watched.own != nullptr && watched.region.data == data) {
      watched.region.size = 0;
      watched.name = "memory that was freed";
      return;
    }
  }
}

namespace {

Watched* host_region(const void* data, uint64_t bytes, bool write, const char* what, Place place) {
  State& s = state();
  if (s.watcher == nullptr || bytes == 0) return nullptr;
  take_regions();
  Watched* watched = region_of(data);
  if (watched == nullptr) watched = region_near(data);
  if (watched == nullptr) return nullptr;
  const char* begin = static_cast<const char*>(data);
  const Region& region = watched->region;
  if (begin < region.data || begin + bytes > region.data + region.size) {
    stop("bounds",
         std::string(what) + (write ? " wrote " : " read ") + watched->outside(data, bytes), place);
  }
  if (write && region.read_only) {
    stop("mutation",
         std::string(what) + " wrote into " + watched->element(data) +
             ", which the operator does not write",
         place);
  }
  return watched;
}

}  // namespace

void host_reads(const void* data, uint64_t bytes, const char* what, Place place) {
  host_region(data, bytes, false, what, place);
}

void host_writes(void* data, uint64_t bytes, const char* what, Place place) {
  Watched* watched = host_region(data, bytes, true, what, place);
  ++state().time;
  if (watched != nullptr) mark_written(*watched, data, bytes);
}

void atomic_access(void* data, uint64_t bytes, Place place) {
  State& s = state();
  if (reinterpret_cast<uintptr_t>(data) % bytes != 0) {
    stop("alignment",
         "an atomic operation on " + std::to_string(bytes) +
             " bytes at an address that is not a "
             "multiple of " +
             std::to_string(bytes),
         place);
  }
  if (s.watcher == nullptr || s.current == nullptr) return;
  access(data, bytes, true, true, place.address);
  // A later atomic operation on `data` is ordered after everything before the fence.
  const auto released = s.released.find(data);
  if (released != s.released.end()) {
    s.current->acquired = std::max(s.current->acquired, released->second);
  }
  if (s.current->fenced) s.released[data] = ++s.time;
}

}  // namespace opsmith::emulated
