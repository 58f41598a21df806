// Calls, launches, blocks and warps.
#include "state.h"

#include <dlfcn.h>
#include <link.h>

#include <bit>
#include <numeric>
#include <stdexcept>

uint3 threadIdx{};
uint3 blockIdx{};
dim3 blockDim;
dim3 gridDim;

namespace opsmith::emulated {

State only_state;

namespace {

std::string triple(uint3 index) {
  return "(" + std::to_string(index.x) + ", " + std::to_string(index.y) + ", " +
         std::to_string(index.z) + ")";
}

uint3 unfold(uint64_t number, dim3 sizes) {
  const uint64_t rest = number / sizes.x;
  return {static_cast<unsigned>(number % sizes.x), static_cast<unsigned>(rest % sizes.y),
          static_cast<unsigned>(rest / sizes.y)};
}

uint64_t count_of(dim3 sizes) { return uint64_t{sizes.x} * sizes.y * sizes.z; }

int take_image(dl_phdr_info* info, size_t, void* data) {
  auto& images = *static_cast<std::vector<Range>*>(data);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_LOAD) continue;
    const auto begin = reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr);
    images.push_back({begin, begin + header.p_memsz});
  }
  return 0;
}

}  // namespace

std::string name_of(uint32_t block, uint32_t thread) {
  return "thread " + triple(unfold(thread, blockDim)) + " of block " +
         triple(unfold(block, gridDim));
}
std::string name_of(const Thread& thread) { return name_of(state().block_number, thread.number); }

void stop(const char* kind, const std::string& text, Place place, const std::string& also,
          Place also_place) {
  State& s = state();
  if (s.watcher != nullptr) {
    s.telling = true;
    s.watcher->fault(kind, text.c_str(), place, also.c_str(), also_place);
    std::abort();  // a watcher does not return
  }
  std::string message = text;
  if (place.file != nullptr) {
    message += "\n  at " + std::string(place.file) + ":" + std::to_string(place.line);
  }
  if (s.current == nullptr) throw std::runtime_error(message);
  // The fibers of the block are left as they are: nobody goes on with them.
  s.failure = message;
  Fiber& fiber = *s.current->fiber;
  fiber.switch_to(s.scheduler);
  std::abort();
}

void remark(const std::string& text, Place place) {
  State& s = state();
  if (s.watcher == nullptr || s.remarked) return;
  s.remarked = s.telling = true;
  s.watcher->remark(text.c_str(), place);
  s.telling = false;
}

void fail(const char* text, Place place) { stop("undefined", text, place); }

// --- calls -------------------------------------------------------------------------------------

void begin_call(Watcher* watcher) {
  State& s = state();
  s.mutex.lock();
  s.watcher = watcher;
  ++s.calls;
  s.random = Random(watcher != nullptr ? watcher->seed() : s.calls);
  s.fill = watcher != nullptr ? watcher->fill() : 0xFF;
  s.allowed_shared_bytes = 48 << 10;
  s.regions.clear();
  s.found.clear();
  s.image = {};
  s.regions_taken = 0;
  s.remarked = false;
  s.released.clear();
  s.time = s.launch_start = 1;
  if (watcher != nullptr) {
    s.images.clear();
    dl_iterate_phdr(take_image, &s.images);
    // Whoever begins a call is code of the kernel's library.
    Dl_info where;
    const bool found = dladdr(__builtin_return_address(0), &where) != 0;
    s.library = found ? static_cast<const char*>(where.dli_fbase) : nullptr;
    take_regions();
  }
}

void end_call() {
  State& s = state();
  s.watcher = nullptr;
  s.regions.clear();
  s.found.clear();
  s.mutex.unlock();
}

// --- launches ----------------------------------------------------------------------------------

namespace {

void check(const Launch& launch) {
  const dim3 &grid = launch.grid, &block = launch.block;
  const std::string how = std::string("the launch of ") + launch.kernel + " with grid " +
                          triple(grid) + " and block " + triple(block);
  const uint64_t blocks = count_of(grid), threads = count_of(block);
  std::string why;
  if (blocks == 0) {
    why = "a grid has at least one block: return early where there is nothing to do";
  } else if (threads == 0) {
    why = "a block has at least one thread";
  } else if (threads > 1024) {
    why = "a block has at most 1024 threads, and this one has " + std::to_string(threads);
  } else if (block.z > 64) {
    why = "a block has at most 64 threads along z";
  } else if (grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) {
    why = "a grid has at most 2147483647 blocks along x, and 65535 along y and z";
  } else if (launch.shared_bytes > state().allowed_shared_bytes) {
    why = std::to_string(launch.shared_bytes) + " bytes of dynamic shared memory are more than " +
          std::to_string(state().allowed_shared_bytes) +
          (state().allowed_shared_bytes <= 48 << 10
               ? ": cudaFuncSetAttribute(cudaFuncAttributeMaxDynamicSharedMemorySize) allows more"
               : "");
  }
  if (!why.empty()) stop("launch", how + " is refused: " + why, launch.place);
}

// What every fiber does: one thread after the other.
void run_threads() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
  State& s = state();
  for (;;) {
    std::string raised;
    try {
      s.running->run(s.running->state);
    } catch (const std::exception& error) {
      raised = error.what();
    } catch (...) {
      raised = "something that is not a std::exception";
    }
    if (!raised.empty()) {
      stop("undefined", "device code threw an exception, which CUDA does not have: " + raised,
           s.running->place);
    }
    settle();
    s.warps[s.current->warp()].running &= ~s.current->bit();
    s.current->fiber->switch_to(s.scheduler);
  }
}

Fiber* take_fiber() {
  State& s = state();
  if (s.free_fibers.empty()) {
    s.fibers.push_back(std::make_unique<Fiber>(run_threads, s.fibers.size()));
    return s.fibers.back().get();
  }
  Fiber* fiber = s.free_fibers.back();
  s.free_fibers.pop_back();
  return fiber;
}

std::string count_text(size_t count) {
  return std::to_string(count) + (count == 1 ? " thread" : " threads");
}

std::string place_text(Place place) {
  return place.file == nullptr
             ? std::string("an unknown line")
             : std::string(place.file).substr(std::string(place.file).rfind('/') + 1) + ":" +
                   std::to_string(place.line);
}

bool same(const char* a, const char* b) {
  return a == b || (a != nullptr && b != nullptr && std::strcmp(a, b) == 0);
}

bool same(Place a, Place b) {
  return a.line == b.line && a.file != nullptr && same(a.file, b.file);
}

bool has_returned(const Thread& thread) {
  return (state().warps[thread.warp()].running & thread.bit()) == 0;
}

// Nothing can go on: says who waits where.
[[noreturn]] void report_deadlock() {
  State& s = state();
  std::vector<std::string> groups;
  std::vector<const Thread*> firsts;
  std::vector<size_t> counts;
  size_t returned = 0;
  for (const Thread& thread : s.threads) {
    if (has_returned(thread)) {
      ++returned;
      continue;
    }
    size_t i = 0;
    while (i < firsts.size() &&
           !(same(firsts[i]->place, thread.place) && firsts[i]->mask == thread.mask)) {
      ++i;
    }
    if (i == firsts.size()) {
      firsts.push_back(&thread);
      counts.push_back(0);
    }
    ++counts[i];
  }
  std::string text = "threads of a block wait at different places: ";
  for (size_t i = 0; i < firsts.size(); ++i) {
    char mask[32] = "";
    if (firsts[i]->waits == Waits::warp) {
      std::snprintf(mask, sizeof mask, " with mask 0x%08x", firsts[i]->mask);
    }
    text += (i != 0 ? "; " : "") + count_text(counts[i]) + " (first: " + name_of(*firsts[i]) +
            ") in " + firsts[i]->what + mask + " at " + place_text(firsts[i]->place);
  }
  if (returned != 0) text += "; " + count_text(returned) + " have returned";
  const bool two = firsts.size() > 1;
  stop("barrier", text, firsts[0]->place, two ? "the other place" : "",
       two ? firsts[1]->place : Place{});
}

void make_ready(Thread& thread) {
  thread.waits = Waits::nothing;
  state().ready.push_back(thread.number);
}

// Lets everybody go on once all have come.
void open_barrier() {
  State& s = state();
  if (s.alive == 0 || s.at_barrier != s.alive) return;
  const Thread* first = nullptr;
  int votes = 0;
  uint32_t acquired = 0;
  size_t returned = 0, waiting = 0;
  for (Thread& thread : s.threads) {
    if (has_returned(thread)) {
      ++returned;
      continue;
    }
    ++waiting;
    if (first == nullptr) first = &thread;
    if (!same(first->place, thread.place) || first->vote != thread.vote) report_deadlock();
    votes += thread.brought != 0 ? 1 : 0;
    acquired = std::max(acquired, thread.acquired);
  }
  if (returned != 0) {
    stop("barrier",
         "not every thread of the block reaches " + std::string(first->what) + ": " +
             count_text(returned) + " returned before it, and " + count_text(waiting) +
             " (first: " + name_of(*first) + ") wait for them",
         first->place);
  }
  switch (first->vote) {
    case Vote::any:
      s.vote_result = votes != 0 ? 1 : 0;
      break;
    case Vote::all:
      s.vote_result = static_cast<uint32_t>(votes) == s.alive ? 1 : 0;
      break;
    default:
      s.vote_result = votes;
  }
  s.last_barrier = ++s.time;
  s.at_barrier = 0;
  for (Thread& thread : s.threads) {
    thread.acquired = acquired;
    make_ready(thread);
  }
}

// Lets the lanes of a mask go on once all of them have come that still run.
void open_warp(const Thread& one) {
  State& s = state();
  Warp& warp = s.warps[one.warp()];
  const unsigned present = one.mask & warp.running;
  if ((present & ~warp.waiting) != 0) return;
  Thread* lanes = &s.threads[one.warp() * warp_size];
  uint32_t acquired = 0;
  uint32_t joined[warp_size] = {};
  for (unsigned rest = present; rest != 0; rest &= rest - 1) {
    const Thread& thread = lanes[std::countr_zero(rest)];
    if (thread.mask != one.mask || !same(thread.what, one.what) || !same(thread.place, one.place)) {
      return;
    }
    acquired = std::max(acquired, thread.acquired);
    for (unsigned lane = 0; lane < warp_size; ++lane) {
      joined[lane] = std::max(joined[lane], thread.clock[lane]);
    }
  }
  ++s.time;
  uint64_t values[warp_size] = {};
  for (unsigned rest = present; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(rest));
    joined[lane] = s.time;
    values[lane] = lanes[lane].brought;
  }
  warp.waiting &= ~present;
  for (unsigned rest = present; rest != 0; rest &= rest - 1) {
    Thread& thread = lanes[std::countr_zero(rest)];
    std::memcpy(thread.values, values, sizeof values);
    std::memcpy(thread.clock, joined, sizeof joined);
    thread.present = present;
    thread.acquired = acquired;
    make_ready(thread);
  }
}

// A thread that has returned may have been the last that others waited for.
void open_after_return(const Thread& returned) {
  State& s = state();
  open_barrier();
  const Warp& warp = s.warps[returned.warp()];
  // Whoever goes on waits no more, so each time it is asked anew.
  for (unsigned lane = 0; warp.waiting != 0 && lane < warp_size; ++lane) {
    if ((warp.waiting >> lane & 1) != 0) open_warp(s.threads[returned.warp() * warp_size + lane]);
  }
}

void begin(Thread& thread) {
  thread.fiber = take_fiber();
  thread.fenced = false;
  thread.acquired = 0;
  std::fill_n(thread.clock, warp_size, state().block_start);
}

void run_block(uint32_t number) {
  State& s = state();
  s.block_number = number;
  ++s.blocks_run;
  blockIdx = unfold(number, gridDim);
  s.block_start = s.last_barrier = ++s.time;
  s.alive = s.threads_of_block;
  s.at_barrier = 0;
  s.shared_bytes = 0;
  s.ready.resize(s.threads_of_block);
  std::iota(s.ready.begin(), s.ready.end(), 0u);
  for (Warp& warp : s.warps) warp = {~0u, 0};
  const unsigned rest = s.threads_of_block % warp_size;
  if (rest != 0) s.warps.back().running = (1u << rest) - 1;
  while (s.alive != 0) {
    if (s.ready.empty()) report_deadlock();
    const uint32_t pick = s.random.below(static_cast<uint32_t>(s.ready.size()));
    std::swap(s.ready[pick], s.ready.back());
    Thread& thread = s.threads[s.ready.back()];
    s.ready.pop_back();
    if (thread.fiber == nullptr) begin(thread);
    s.current = &thread;
    threadIdx = thread.index;
    s.in_device = true;
    s.scheduler.switch_to(*thread.fiber);
    s.in_device = false;
    s.current = nullptr;
    if (!s.failure.empty()) {
      // What waits on the other fibers is lost with them.
      s.fibers.clear();
      s.free_fibers.clear();
      std::string message;
      std::swap(message, s.failure);
      throw std::runtime_error(message);
    }
    if (has_returned(thread)) {
      s.free_fibers.push_back(thread.fiber);
      thread.fiber = nullptr;
      --s.alive;
      open_after_return(thread);
    } else if (thread.waits == Waits::block) {
      ++s.at_barrier;
      open_barrier();
    } else {
      s.warps[thread.warp()].waiting |= thread.bit();
      open_warp(thread);
    }
  }
}

}  // namespace

void launch(const Launch& launch) {
  State& s = state();
  if (s.in_device) {
    stop("launch", "a kernel is launched by device code, which opsmith does not emulate",
         launch.place);
  }
  check(launch);
  take_regions();
  gridDim = launch.grid;
  blockDim = launch.block;
  s.running = &launch;
  s.threads_of_block = static_cast<uint32_t>(count_of(launch.block));
  s.threads.resize(s.threads_of_block);
  s.warps.resize((s.threads_of_block + warp_size - 1) / warp_size);
  for (uint32_t i = 0; i < s.threads_of_block; ++i) {
    s.threads[i].number = i;
    s.threads[i].index = unfold(i, launch.block);
    s.threads[i].fiber = nullptr;
  }
  s.launch_start = ++s.time;
  s.shared.clear();
  s.found.clear();
  s.variables.clear();
  s.dynamic = nullptr;
  s.released.clear();
  const auto blocks = static_cast<uint32_t>(std::min<uint64_t>(count_of(launch.grid), UINT32_MAX));
  std::vector<uint32_t> order(blocks);
  for (uint32_t i = 0; i < blocks; ++i) order[i] = i;
  s.random.shuffle(order);
  for (const uint32_t number : order) run_block(number);
  s.running = nullptr;
  ++s.time;
}

void allow_shared_bytes(uint64_t bytes) {
  state().allowed_shared_bytes = std::max<uint64_t>(bytes, 48 << 10);
}

// --- what threads wait in ----------------------------------------------------------------------

namespace {

Thread& current_thread(const char* what, Place place) {
  Thread* thread = state().current;
  if (thread == nullptr) stop("host", std::string(what) + " is called by host code", place);
  return *thread;
}

}  // namespace

int synchronise_block(Vote vote, int predicate, Place place) {
  constexpr const char* names[] = {"__syncthreads", "__syncthreads_or", "__syncthreads_and",
                                   "__syncthreads_count"};
  State& s = state();
  const char* what = names[static_cast<int>(vote)];
  Thread& thread = current_thread(what, place);
  settle();
  thread.waits = Waits::block;
  thread.place = place;
  thread.what = what;
  thread.vote = vote;
  thread.mask = 0;
  thread.brought = predicate != 0 ? 1 : 0;
  thread.fiber->switch_to(s.scheduler);
  return s.vote_result;
}

Lanes exchange(unsigned mask, uint64_t value, const char* what, Place place) {
  State& s = state();
  Thread& thread = current_thread(what, place);
  settle();
  if ((mask >> thread.lane() & 1) == 0) {
    char text[160];
    std::snprintf(text, sizeof text,
                  " calls %s with mask 0x%08x, which leaves out its own lane, %u", what, mask,
                  thread.lane());
    stop("barrier", name_of(thread) + text, place);
  }
  thread.waits = Waits::warp;
  thread.place = place;
  thread.what = what;
  thread.mask = mask;
  thread.brought = value;
  thread.fiber->switch_to(s.scheduler);
  Lanes lanes;
  std::memcpy(lanes.values, thread.values, sizeof lanes.values);
  lanes.present = thread.present;
  lanes.lane = thread.lane();
  return lanes;
}

uint64_t value_of(const Lanes& lanes, unsigned lane, const char* what, Place place) {
  State& s = state();
  if ((lanes.present >> lane & 1) != 0) return lanes.values[lane];
  remark(std::string(what) + " took the value of lane " + std::to_string(lane) +
             ", which does not take part: " + name_of(*s.current),
         place);
  uint64_t nothing;
  std::memset(&nothing, s.fill, sizeof nothing);
  return nothing;
}

unsigned lane_number() { return state().current != nullptr ? state().current->lane() : 0; }

void fence() {
  if (state().current != nullptr) state().current->fenced = true;
}

uint64_t ticks() { return state().time; }

}  // namespace opsmith::emulated
