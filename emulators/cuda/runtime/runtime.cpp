// Runs calls, launches and the threads of a block, one after the other.
#include "waiting.h"

#include <dlfcn.h>
#include <link.h>

#include <numeric>
#include <stdexcept>

uint3 threadIdx{};
uint3 blockIdx{};
dim3 blockDim;
dim3 gridDim;

namespace emulated {

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
  const Launch* running = state().running;
  if (running != nullptr && running->items != 0) {
    const uint64_t item = uint64_t{block} * state().threads_of_block + thread;
    return running->kernel +
           (running->items == 1 ? std::string() : ", for item " + std::to_string(item) + ",");
  }
  return "thread " + triple(unfold(thread, blockDim)) + " of block " +
         triple(unfold(block, gridDim));
}
std::string name_of(const Thread& thread) { return name_of(state().block_number, thread.number); }

namespace {

// Adds the line that called a library's algorithm, since its own lines are not the user's.
Place called(Place place) {
  const Launch* running = state().running;
  if (place.file != nullptr || running == nullptr || running->items == 0) return place;
  return {running->place.file, running->place.line, place.address};
}

}  // namespace

void stop(const char* kind, const std::string& text, Place place, const std::string& also,
          Place also_place) {
  State& s = state();
  place = called(place);
  if (!also.empty()) also_place = called(also_place);
  if (s.watcher != nullptr) {
    s.telling = true;
    if (s.ends_only && s.unsure) kind = "unsure";
    if (!s.refused.empty()) {
      // What comes after a kernel that did not run is no cause.
      const std::string cause = s.refused + ", and the program does not ask for the error";
      s.watcher->fault("launch", cause.c_str(), s.refused_at, text.c_str(), place);
    }
    s.watcher->fault(kind, text.c_str(), place, also.c_str(), also_place);
    std::abort();  // a watcher does not return
  }
  std::string message = text;
  if (place.file != nullptr) {
    message += "\n  at " + std::string(place.file) + ":" + std::to_string(place.line);
  }
  if (s.current == nullptr) throw std::runtime_error(message);
  // Abandon the fibers of the block: they are never resumed.
  s.failure = message;
  Fiber& fiber = *s.current->fiber;
  fiber.switch_to(s.scheduler);
  std::abort();
}

void remark(const std::string& text, Place place) {
  State& s = state();
  if (s.watcher == nullptr || s.remarked) return;
  s.remarked = s.telling = true;
  s.watcher->remark(text.c_str(), called(place));
  s.telling = false;
}

void fail(const char* text, Place place) { stop("undefined", text, place); }

// --- calls -------------------------------------------------------------------------------------

void begin_call(Watcher* watcher) {
  State& s = state();
  s.mutex.lock();
  s.watcher = watcher;
  ++s.calls;
  s.launches_only = watcher != nullptr && watcher->seed() == no_threads;
  s.ends_only = watcher != nullptr && watcher->seed() == vast::ends_only;
  s.interleaves = watcher != nullptr && watcher->seed() > 1;
  s.unsure = false;
  s.program = watcher != nullptr && watcher->is_program();
  s.random = Random(watcher != nullptr ? watcher->seed() : s.calls);
  s.fill = watcher != nullptr ? watcher->fill() : 0xFF;
  s.found.clear();
  s.image = {};
  s.regions_taken = 0;
  s.remarked = s.outside_graphs = false;
  s.locations.clear();
  s.doubtful.clear();
  s.spins = 0;
  s.time = s.launch_start = s.launched = 1;
  if (watcher != nullptr) {
    s.images.clear();
    dl_iterate_phdr(take_image, &s.images);
    // The caller of this function is code of the kernel's library.
    Dl_info where;
    const bool found = dladdr(__builtin_return_address(0), &where) != 0;
    s.library = found ? static_cast<const char*>(where.dli_fbase) : nullptr;
    take_variables();
    take_regions();
  }
}

void end_call() {
  State& s = state();
  if (s.ends_only && s.unsure) s.watcher->remark("unsure", {});
  s.watcher = nullptr;
  s.program = false;
  // The host's code may keep what it has allocated for later calls.
  std::erase_if(s.regions, [](const Watched& one) { return one.own == nullptr || one.freed != 0; });
  for (Watched& kept : s.regions) {
    kept.forget_accesses();
    kept.all_known = true;
  }
  s.found.clear();
  s.mutex.unlock();
}

// --- launches ----------------------------------------------------------------------------------

namespace {

uint64_t allowed_shared_bytes(const Launch& launch) {
  uint64_t most = usual_shared_bytes;
  for (const auto& [function, bytes] : state().allowed_shared_bytes) {
    // The address of a template whose arguments are deduced is not known: any may be meant.
    const bool meant = launch.function == nullptr || function == launch.function;
    if (meant) most = std::max(most, bytes);
  }
  return most;
}

// Returns whether a launch runs: an error of a program's that it looks at is none of ours.
bool check(const Launch& launch) {
  const dim3 &grid = launch.grid, &block = launch.block;
  const std::string how = std::string("the launch of ") + launch.kernel + " with grid " +
                          triple(grid) + " and block " + triple(block);
  const uint64_t blocks = count_of(grid), threads = count_of(block);
  std::string why;
  if (blocks == 0) {
    why =
        "a grid has at least one block (on a GPU, cudaErrorInvalidConfiguration, and no thread "
        "runs): return early where there is nothing to do, or declare sizes of 1 and more";
  } else if (threads == 0) {
    why = "a block has at least one thread";
  } else if (threads > 1024) {
    why = "a block has at most 1024 threads, and this one has " + std::to_string(threads);
  } else if (block.z > 64) {
    why = "a block has at most 64 threads along z";
  } else if (grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) {
    why = "a grid has at most 2147483647 blocks along x, and 65535 along y and z";
  } else if (launch.shared_bytes > allowed_shared_bytes(launch)) {
    why = std::to_string(launch.shared_bytes) + " bytes of dynamic shared memory are more than " +
          std::to_string(allowed_shared_bytes(launch)) +
          (launch.shared_bytes <= most_shared_bytes
               ? ": cudaFuncSetAttribute(cudaFuncAttributeMaxDynamicSharedMemorySize) of this "
                 "kernel allows more"
               : ", and no device has them");
  } else if (state().watcher != nullptr && launch.default_stream && !state().program) {
    why =
        "it is on the default stream, which knows nothing of the work on the call's: pass "
        "opsmith::cuda_stream(ctx), or at::cuda::getCurrentCUDAStream() in PyTorch's host code, as "
        "the fourth of <<<…>>>, or use opsmith::launch";
  }
  if (why.empty()) return true;
  const std::string text = how + " is refused: " + why;
  State& s = state();
  if (!s.program) stop("launch", text, launch.place);
  s.error = 9;  // cudaErrorInvalidConfiguration
  if (s.refused.empty()) {
    s.refused = text;
    s.refused_at = launch.place;
  }
  return false;
}

// The main function of every fiber: runs one thread after the other.
void run_threads() {
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
    // A thread that returns does not wait, and the copies go on.
    commit_copies();
    wait_for_copies(0);
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

void begin(Thread& thread) {
  thread.fiber = take_fiber();
  thread.forget();
  thread.copy_groups = 0;
  thread.spins_at = nullptr;
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
  s.copies.clear();
  s.named = {};
  s.ready.resize(s.threads_of_block);
  std::iota(s.ready.begin(), s.ready.end(), 0u);
  for (Warp& warp : s.warps) warp = {every_lane, 0};
  const unsigned rest = s.threads_of_block % warp_size;
  if (rest != 0) s.warps.back().running = (LaneMask{1} << rest) - 1;
  while (s.alive != 0) {
    if (s.ready.empty()) report_deadlock();
    const uint32_t pick = s.random.below(static_cast<uint32_t>(s.ready.size()));
    std::swap(s.ready[pick], s.ready.back());
    Thread& thread = s.threads[s.ready.back()];
    s.ready.pop_back();
    if (thread.fiber == nullptr) begin(thread);
    s.current = &thread;
    threadIdx = thread.index;
    s.resumed = ++s.time;
    s.in_device = true;
    s.scheduler.switch_to(*thread.fiber);
    s.in_device = false;
    s.current = nullptr;
    if (!s.failure.empty()) {
      // Objects on the stacks of the other fibers are lost with them.
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
      s.spins = 0;
      open_after_return(thread);
    } else if (thread.waits == Waits::block) {
      ++s.at_barrier;
      open_barrier();
    } else if (thread.waits == Waits::warp) {
      s.warps[thread.warp()].waiting |= thread.bit();
      open_warp(thread);
    } else if (thread.waits == Waits::nothing) {
      s.ready.push_back(thread.number);
    }
  }
}

}  // namespace

// As many blocks of a grid run where only its end does.
constexpr uint32_t kEnd = 4;

void launch(const Launch& launch) {
  State& s = state();
  if (s.in_device) {
    stop("launch", "a kernel is launched by device code, which opsmith does not emulate",
         launch.place);
  }
  if (!s.unsure && !check(launch)) return;
  if (s.launches_only || (s.program && is_repeated(launch))) return;
  if (s.time > UINT32_MAX / 4 * 3) {
    stop("limit", "the program is too long to be watched to its end", launch.place);
  }
  take_regions();
  const Work work("the launch of ", launch.kernel, launch.place);
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
  s.launch_start = s.launched = ++s.time;
  s.shared.clear();
  s.found.clear();
  s.variables.clear();
  s.dynamic = nullptr;
  s.locations.clear();
  const auto blocks = static_cast<uint32_t>(std::min<uint64_t>(count_of(launch.grid), UINT32_MAX));
  std::vector<uint32_t> order(s.ends_only ? std::min(blocks, kEnd) : blocks);
  std::iota(order.begin(), order.end(), blocks - static_cast<uint32_t>(order.size()));
  // The last blocks may have nothing to do.
  if (s.ends_only && blocks > 8 * kEnd) {
    for (const uint64_t eighths : {5, 6, 7}) {
      order.push_back(static_cast<uint32_t>(blocks * eighths / 8));
    }
  }
  s.random.shuffle(order);
  for (const uint32_t number : order) run_block(number);
  s.running = nullptr;
  ++s.time;
}

void yield() {
  State& s = state();
  settle();
  s.current->waits = Waits::nothing;
  s.current->fiber->switch_to(s.scheduler);
}

// As on a device, a function keeps what was once set.
bool allow_shared_bytes(const void* kernel, uint64_t bytes) {
  if (bytes > most_shared_bytes) return false;
  state().allowed_shared_bytes[kernel] = bytes;
  return true;
}

void check_threads(uint64_t most, Place place) {
  const State& s = state();
  if (s.current == nullptr || s.threads_of_block <= most) return;
  stop("launch",
       std::string("the launch of ") + s.running->kernel + " with block " + triple(blockDim) +
           " is refused: its __launch_bounds__ promise at most " + std::to_string(most) +
           " threads, and this block has " + std::to_string(s.threads_of_block),
       s.running->place, "the bounds", place);
}

void host_only(const char* name, Place place) {
  if (state().current == nullptr) return;
  stop("host",
       name_of(*state().current) + " calls " + name +
           ", a function of the host: it has no __device__",
       place);
}

void kernel_only(const char* name, Place place) {
  if (state().current != nullptr) return;
  stop("host", std::string("the host calls ") + name + ", which is a kernel, without <<<...>>>",
       place);
}

void check_stream(const void* stream, const char* what, Place place) {
  if (state().watcher == nullptr || stream != nullptr || state().program) return;
  const std::string name = what;
  const bool waits = name.starts_with("cudaMem") && !name.ends_with("Async");
  stop("launch",
       name + " is on the default stream, which knows nothing of the work on the call's: " +
           (waits ? "call " + name + "Async, and cudaStreamSynchronize before the host reads; "
                  : std::string()) +
           "pass opsmith::cuda_stream(ctx), or at::cuda::getCurrentCUDAStream() in PyTorch's "
           "host code",
       place);
}

void outside_graphs(const char* what, Place place) {
  State& s = state();
  if (s.watcher == nullptr || s.program || s.outside_graphs) return;
  s.outside_graphs = true;
  s.watcher->remark((std::string("no CUDA graph captures ") + what).c_str(), called(place));
}

void asks_for_storage(const char* what, Place place) {
  State& s = state();
  if (s.asked == what && s.asked_in == s.calls) {
    remark(std::string(what) +
               " has a null pointer as its temporary storage again, and then only says how many "
               "bytes it needs",
           place);
  }
  s.asked = what;
  s.asked_in = s.calls;
}

void takes_storage(const char* what, uint64_t given, uint64_t needed, Place place) {
  state().asked.clear();
  if (given >= needed) return;
  stop("launch",
       std::string(what) + " is refused: it has " + std::to_string(given) +
           " bytes of temporary storage, and needs " + std::to_string(needed) +
           ": pass what a call with a null pointer and the same arguments asks for",
       place);
}

uint64_t ticks() { return state().time; }

}  // namespace emulated
