// The memory of the device: finds the region of an address, and gives shared memory to blocks.
#include "state.h"

#include <dlfcn.h>

namespace emulated {

// The rewritten source aligns variables to as many bytes.
constexpr uint64_t kApart = 64;

uint32_t since_when(const Watched& watched) { return watched.shared ? state().block_start : 1; }

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
      if (!watched.near(address)) continue;
      // The memory before a variable mostly lies behind another variable.
      const bool variable = watched.region.guard == kApart;
      if (!variable || (s.variables_at.holds(address) && address >= watched.region.data)) {
        return &watched;
      }
    }
  }
  return nullptr;
}

namespace {

void prepare(Watched& watched) {
  if (watched.region.written) mark_written(watched, watched.region.data, watched.region.size);
}

Watched& adopt(const Region& region) {
  Watched& watched = state().regions.emplace_back(region, false);
  prepare(watched);
  return watched;
}

}  // namespace

void mark_written(Watched& watched, const void* data, uint64_t bytes) {
  const State& s = state();
  if (watched.region.read_only || watched.region.vast) return;
  const auto begin = static_cast<uint64_t>(static_cast<const char*>(data) - watched.region.data);
  if (bytes == watched.region.size && !watched.shared) {
    watched.all_known = true;
    return;
  }
  const uint32_t since = since_when(watched);
  for (uint64_t offset = begin; offset < begin + bytes;) {
    Granule& granule = watched.granule_at(offset);
    if (granule.known_time < since) granule.known = 0;
    const uint64_t first = offset % watched.granule;
    const uint64_t count = std::min(watched.granule - first, begin + bytes - offset);
    granule.known |= ((1u << count) - 1) << first;
    granule.known_time = s.time;
    offset += count;
  }
}

namespace {

void take_variable(const Declared& one) {
  State& s = state();
  Dl_info where;
  if (dladdr(one.data, &where) == 0 || where.dli_fbase != s.library) return;
  Region region;
  const std::string name = std::string("variable '") + one.name + "'";
  region.name = name.c_str();
  region.data = one.data;
  region.size = one.bytes;
  region.element = one.element;
  region.written = true;
  region.guard = kApart;
  adopt(region);
  Range& all = s.variables_at;
  if (all.begin == nullptr || one.data < all.begin) all.begin = one.data;
  const uint64_t taken = (one.bytes + kApart - 1) / kApart * kApart;
  all.end = std::max(all.end, static_cast<const char*>(one.data) + taken);
}

}  // namespace

void take_variables() {
  State& s = state();
  s.variables_at = {};
  for (const Declared& one : s.declared) take_variable(one);
}

DeviceVariable::DeviceVariable(const char* name, void* data, uint64_t bytes, uint64_t element)
    : data_(data) {
  State& s = state();
  s.declared.push_back({name, static_cast<char*>(data), bytes, element});
  if (s.program) take_variable(s.declared.back());
}
DeviceVariable::~DeviceVariable() {
  std::erase_if(state().declared, [&](const Declared& one) { return one.data == data_; });
}

void take_regions() {
  State& s = state();
  if (s.watcher == nullptr) return;
  const uint64_t count = s.watcher->region_count();
  for (; s.regions_taken < count; ++s.regions_taken) {
    adopt(s.watcher->region(s.regions_taken));
  }
}

namespace {

Watched& share(const char* name, uint64_t size, uint64_t alignment, uint64_t element) {
  State& s = state();
  auto memory = std::make_unique<Guarded>(size, alignment, s.fill);
  const std::string full = std::string("shared memory '") + name + "'";
  Watched& watched = s.shared.emplace_back(memory->region(full.c_str(), element), true);
  watched.own = std::move(memory);
  return watched;
}

// CUDA counts what a block declares with what a launch adds.
void check_shared_bytes(Place place) {
  const State& s = state();
  if (s.shared_bytes > usual_shared_bytes) {
    stop("launch",
         "a block declares " + std::to_string(s.shared_bytes) +
             " bytes of shared memory, and 49152 are the most; more is to be had as dynamic shared "
             "memory",
         place);
  }
  const uint64_t all = s.shared_bytes + s.running->shared_bytes;
  const bool more = s.running->function == nullptr
                        ? !s.allowed_shared_bytes.empty()
                        : s.allowed_shared_bytes.count(s.running->function) != 0;
  const uint64_t most = more ? most_shared_bytes : usual_shared_bytes;
  if (all <= most) return;
  stop("launch",
       std::string("the launch of ") + s.running->kernel + " is refused: " +
           std::to_string(s.running->shared_bytes) + " bytes of dynamic shared memory and " +
           std::to_string(s.shared_bytes) + " declared ones are more than " + std::to_string(most) +
           (more ? ", and no device has them"
                 : ": cudaFuncSetAttribute(cudaFuncAttributeMaxDynamicSharedMemorySize) of this "
                   "kernel allows more"),
       s.running->place, "the declared shared memory", place);
}

}  // namespace

char* shared_memory(Variable& variable, Place place) {
  State& s = state();
  if (s.current == nullptr) stop("host", "shared memory is used by host code", place);
  if (variable.block == s.blocks_run) return variable.data;
  Watched*& watched = s.variables[&variable];
  if (watched == nullptr) {
    watched = &share(variable.name, variable.size, variable.alignment, variable.element);
  }
  s.shared_bytes += variable.size;
  check_shared_bytes(place);
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
    s.dynamic = &share(name, s.running->shared_bytes, 16, 4);
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

char* shared_memory_at(uint64_t address, const char* what, Place place) {
  State& s = state();
  if (s.current == nullptr) stop("host", std::string(what) + " is called by host code", place);
  for (const int64_t beside : {int64_t{0}, static_cast<int64_t>(Guarded::guard)}) {
    for (const Watched& one : s.shared) {
      const uint32_t begin = shared_address(one.region.data);
      const int64_t offset = static_cast<int32_t>(static_cast<uint32_t>(address) - begin);
      const auto size = static_cast<int64_t>(one.region.size);
      if (offset >= -beside && offset < size + beside) return one.region.data + offset;
    }
  }
  stop("undefined",
       name_of(*s.current) + ": " + what +
           " takes an address that is not one of shared memory, as __cvta_generic_to_shared has it",
       place);
}

void* allocate(uint64_t bytes, uint64_t element, const char* what, Place place, bool for_host) {
  State& s = state();
  if (s.program && bytes > uint64_t{8} << 30) return nullptr;
  const std::string name = std::string("memory of ") + what + told(place);
  auto memory = std::make_unique<Guarded>(bytes, 256, s.fill, s.ends_only);
  Region region = memory->region(name.c_str(), element);
  region.written = for_host;  // by the host, unseen
  Watched& watched = adopt(region);
  watched.own = std::move(memory);
  watched.for_host = for_host;
  if (s.program && !for_host) allow(watched, PROT_NONE);
  return watched.region.data;
}

namespace {

// A later access is reported as one to memory that was freed.
void mark_freed(Watched& watched, const std::string& name) {
  watched.freed = watched.region.size;
  watched.region.size = 0;
  watched.name = name;
}

}  // namespace

void release(void* data, const char* what, Place place) {
  State& s = state();
  if (s.program) synchronise();
  for (Watched& watched : s.regions) {
    if (watched.own == nullptr || watched.region.data != data) continue;
    if (watched.region.size == 0 && watched.freed != 0) break;
    if (!s.program) return mark_freed(watched, "memory that was freed");
    mark_freed(watched, watched.name + ", which was freed" + told(place));
    watched.shadow = Pages();
    watched.own->allow(PROT_READ | PROT_WRITE);
    madvise(watched.own->data(), watched.own->size(), MADV_DONTNEED);
    watched.own->allow(PROT_NONE);
    return;
  }
  const Watched* near = region_near(data);
  if (data == nullptr || (!s.program && near == nullptr)) return;
  stop(s.program ? "memory" : "host",
       std::string(what) + " takes " +
           (near != nullptr ? near->element(data) : "memory that no function of CUDA's gave") +
           ": it is to have the beginning of memory that is not freed yet",
       place);
}

void watch_memory(const Region& region) {
  State& s = state();
  if (s.watcher == nullptr) return;
  for (Watched& watched : s.regions) {
    if (watched.region.data != region.data || watched.region.size != region.size) continue;
    watched = Watched(region, false);
    return prepare(watched);
  }
  adopt(region);
}

void forget_memory(const void* data) {
  for (Watched& watched : state().regions) {
    if (watched.region.data == data) mark_freed(watched, "memory that was freed");
  }
}

void memory_is_written(const void* data, uint64_t bytes) {
  Watched* watched = bytes == 0 ? nullptr : region_of(data);
  if (watched == nullptr) return;
  const char* begin = static_cast<const char*>(data);
  const char* end =
      std::min<const char*>(begin + bytes, watched->region.data + watched->region.size);
  ++state().time;
  mark_written(*watched, begin, static_cast<uint64_t>(end - begin));
}

void host_reads_results() {
  if (state().launches_only || state().ends_only) state().unsure = true;
}

Unwatched::Unwatched(bool really) : before_(state().telling) {
  state().telling = before_ || really;
}
Unwatched::~Unwatched() { state().telling = before_; }

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

// The whole of vast memory is a few megabytes.
uint64_t moved(const Watched* to, uint64_t bytes) {
  return to != nullptr && to->region.vast ? std::min(bytes, vast::file_bytes) : bytes;
}

}  // namespace

void host_runs(const char* what, const void* data, Place place) {
  if (state().watcher == nullptr || state().in_device) return;
  take_regions();
  const Watched* watched = region_of(data);
  if (watched == nullptr) return;
  stop("host",
       std::string(what) + " runs on the host where it has raw pointers and no execution policy, " +
           "and " + watched->element(data) +
           " is in the memory of the device: pass thrust::cuda::par.on(stream)",
       place);
}

void host_fills(void* data, int value, uint64_t bytes, const char* what, Place place, bool waits) {
  Watched* watched = host_region(data, bytes, true, what, place);
  ++state().time;
  if (watched != nullptr) mark_written(*watched, data, bytes);
  {
    const Work work("", what, place);
    std::memset(data, value, moved(watched, bytes));
  }
  if (waits && watched != nullptr && watched->for_host) synchronise();
}

void host_copies(void* to, const void* from, uint64_t bytes, const char* what, Place place, Way way,
                 bool waits) {
  const Watched* source = host_region(from, bytes, false, what, place);
  Watched* watched = host_region(to, bytes, true, what, place);
  if (state().program && bytes != 0) {
    if (waits) synchronise();
    check_way(source, from, way == Way::device_to_host || way == Way::device_to_device, way, what,
              "source", place);
    check_way(watched, to, way == Way::host_to_device || way == Way::device_to_device, way, what,
              "destination", place);
  }
  ++state().time;
  if (watched != nullptr) mark_written(*watched, to, bytes);
  if (watched == nullptr && state().launches_only) state().unsure = true;
  {
    const Work work("", what, place);
    std::memmove(to, from, moved(watched, bytes));
  }
  if (state().program && waits) synchronise();
}

}  // namespace emulated
