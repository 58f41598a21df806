// opsmith-harness LIBRARY CASES RESULTS: calls a kernel on every case in every phase.
//
// The library has the kernel and its generated adapter. Results are written after each call, so
// that a crash loses no earlier ones; after all calls, the file ends with 'E'.
#include "allocations.h"
#include "call.h"
#include "state.h"

#include <dlfcn.h>
#include <sys/resource.h>
#include <unistd.h>

#include <thread>

namespace {

using namespace opsmith::harness;

using Entry = void (*)(Runtime&, void*, void (*)(void*, const char*));

Phase read_phase(Reader& in) {
  Phase phase;
  phase.placement.at_end = in.get<uint8_t>() != 0;
  phase.placement.fill = in.get<uint8_t>();
  phase.seed = in.get<uint64_t>();
  phase.placement.vast = phase.seed == vast::ends_only;
  phase.threads = in.get<int32_t>();
  phase.calls = in.get<int32_t>();
  phase.together = in.get<uint8_t>() != 0;
  phase.pause = in.get<int32_t>();
  return phase;
}

void call(Entry entry, Running& running) {
  const pid_t own = getpid();
  entry(running, &running,
        [](void* self, const char* message) { static_cast<Running*>(self)->fail(message); });
  if (getpid() != own) _exit(0);  // this is a copy of the process that the kernel forked
}

// Calls once, and returns messages about changes to the state of the process.
std::vector<std::string> observe(Entry entry, Running& running) {
  const State before;
  call(entry, running);
  const std::string given = running.contents();
  std::vector<std::string> found = State::after(before).differences(before);
#ifndef OPSMITH_HARNESS_SANITIZED  // MemorySanitizer must not see results compared
  if (running.contents() != given) found = {"works on: it wrote results after it had returned"};
#endif
  return found;
}

// Repeats the same call, and reports memory that every call allocates and does not free.
std::vector<std::string> repeat(Entry entry, const std::vector<Argument>& arguments,
                                const Phase& phase) {
  Allocated before;
  for (int32_t i = 0; i < phase.calls; ++i) {
    // The first calls may fill caches that later ones use.
    if (i == phase.calls / 2) before = allocated();
    Running running(arguments, phase);
    call(entry, running);
  }
  const Allocated after = allocated();
  const int64_t calls = phase.calls - phase.calls / 2;
  if (calls < 2 || after.blocks - before.blocks < calls) return {};
  return {"allocates " + std::to_string((after.bytes - before.bytes) / calls) +
          " bytes in every call that it never gives back"};
}

void run_apart(Entry entry, const std::vector<std::vector<Argument>>& cases, const Phase& phase,
               std::FILE* file) {
  for (const std::vector<Argument>& arguments : cases) {
    Running running(arguments, phase);
    // The observed call comes first, since only the first call changes a setting that then stays.
    std::vector<std::string> seen = observe(entry, running);
    if (phase.calls > 1) {
      const std::vector<std::string> kept = repeat(entry, arguments, phase);
      seen.insert(seen.end(), kept.begin(), kept.end());
    }
    Writer out;
    running.report(out, seen);
    out.flush(file);
  }
}

void run_together(Entry entry, const std::vector<std::vector<Argument>>& cases, const Phase& phase,
                  std::FILE* file) {
  std::deque<Running> calls;
  for (const std::vector<Argument>& arguments : cases) calls.emplace_back(arguments, phase);
  std::atomic<size_t> waiting{calls.size()};
  std::vector<std::thread> threads;
  for (Running& running : calls) {
    threads.emplace_back([&waiting, &running, entry] {
      --waiting;
      while (waiting.load() != 0) {
      }
      call(entry, running);
    });
  }
  for (std::thread& thread : threads) thread.join();
  Writer out;
  for (Running& running : calls) running.report(out, {});
  out.flush(file);
}

// Runs the cases one after the other, while the call of the first case waits in its middle.
void run_in_the_middle(Entry entry, const std::vector<std::vector<Argument>>& cases,
                       const Phase& phase, std::FILE* file) {
  std::deque<Running> calls;
  for (const std::vector<Argument>& arguments : cases) calls.emplace_back(arguments, phase);
  Pause pause;
  calls.front().pause_at(pause, static_cast<uint64_t>(phase.pause));
  pausing.store(&pause);
  std::thread first([&] {
    call(entry, calls.front());
    pause.first_returned();
  });
  pause.wait_for_first();
  std::thread others([&] {
    for (size_t i = 1; i < calls.size(); ++i) call(entry, calls[i]);
    pause.others_returned();
  });
  first.join();
  others.join();
  pausing.store(nullptr);
  pause.release();  // in case the kernel never accessed the block
  Writer out;
  for (Running& running : calls) running.report(out, {});
  out.flush(file);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: opsmith-harness LIBRARY CASES RESULTS\n", stderr);
    return 2;
  }
  std::FILE* file = std::fopen(argv[3], "wb");
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (file == nullptr || library == nullptr) {
    std::fprintf(stderr, "opsmith-harness: %s\n", file == nullptr ? argv[3] : dlerror());
    return 2;
  }
  const auto entry = reinterpret_cast<Entry>(dlsym(library, "opsmith_harness_call"));
  if (entry == nullptr) {
    std::fprintf(stderr, "opsmith-harness: %s\n", dlerror());
    return 2;
  }
#ifndef OPSMITH_HARNESS_SANITIZED
  watch_faults(file);
#endif
  Reader in(argv[2]);
  std::vector<Phase> phases(in.get<uint32_t>());
  for (Phase& phase : phases) phase = read_phase(in);
  std::vector<std::vector<Argument>> cases(in.get<uint32_t>());
  for (std::vector<Argument>& arguments : cases) {
    arguments.resize(in.get<uint32_t>());
    for (Argument& argument : arguments) argument = read_argument(in);
  }
  for (const Phase& phase : phases) {
    if (phase.placement.vast) {
      // A kernel with gigabytes of its own is refused them, so that the machine does not run out.
      const rlimit most{uint64_t{2} << 30, uint64_t{2} << 30};
      setrlimit(RLIMIT_DATA, &most);
      const rlimit seconds{8, 12};
      setrlimit(RLIMIT_CPU, &seconds);
    }
    auto* run = phase.together ? run_together : run_apart;
#ifndef OPSMITH_HARNESS_SANITIZED
    if (phase.together && phase.pause >= 0) run = run_in_the_middle;
#endif
    run(entry, cases, phase, file);
  }
  std::fputc('E', file);
  std::fclose(file);
  return 0;
}
