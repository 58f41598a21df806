// Watches a whole program. Memory of the device is closed to the host: an access of the host's ends
// in a signal, whoever makes it. Memory of both is closed to the host while work on the device may
// still be using it, which the host has to wait for.
#include <emulated/program.h>

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>

#include "state.h"

namespace emulated {

std::string told(Place place) {
  if (place.file == nullptr || !state().program) return {};
  const std::string file = place.file;
  return " at " + file.substr(file.rfind('/') + 1) + ":" + std::to_string(place.line);
}

void allow(Watched& watched, int protection) {
  if (watched.own == nullptr || watched.allowed == protection) return;
  watched.allowed = protection;
  watched.own->allow(protection);
}

Work::Work(const char* kind, const char* what, Place place)
    : kind_(kind), what_(what), place_(place), before_(state().works) {
  State& s = state();
  if (!s.program) return;
  s.works = true;
  for (Watched& one : s.regions) {
    if (one.for_host) allow(one, PROT_NONE);
  }
}

Work::~Work() {
  State& s = state();
  if (!s.program) return;
  s.works = before_;
  for (Watched& one : s.regions) {
    if (one.own == nullptr || one.region.size == 0) continue;
    const bool touched = one.allowed != PROT_NONE;
    if (touched && one.for_host) {
      one.used |= one.allowed;
      one.used_by = std::string(kind_) + what_;
      one.used_at = place_;
    }
    const bool writes = (one.used & PROT_WRITE) != 0;
    const int rest = one.used == PROT_NONE ? PROT_READ | PROT_WRITE : PROT_READ;
    allow(one, writes || !one.for_host ? PROT_NONE : rest);
  }
}

void synchronise() {
  for (Watched& one : state().regions) {
    if (!one.for_host || one.used == PROT_NONE || one.region.size == 0) continue;
    one.used = PROT_NONE;
    allow(one, PROT_READ | PROT_WRITE);
  }
}

void check_way(const Watched* watched, const void* data, bool of_device, Way way, const char* what,
               const char* end, Place place) {
  const State& s = state();
  if (way == Way::any || (watched != nullptr && watched->for_host)) return;
  if (of_device == (watched != nullptr)) return;
  for (const Range& image : s.images) {
    if (image.holds(data)) return;  // a variable, as of __constant__
  }
  constexpr const char* ways[] = {"HostToHost", "HostToDevice", "DeviceToHost", "DeviceToDevice"};
  stop("memory",
       std::string(what) + " copies with cudaMemcpy" + ways[static_cast<int>(way)] + ", and its " +
           end + " is " + (watched != nullptr ? watched->element(data) : "memory of the host"),
       place);
}

bool is_repeated(const Launch& launch) {
  State& s = state();
  const uint64_t most = s.watcher->repeats();
  if (launch.items == 0 && most != UINT64_MAX) {
    const dim3 sizes[] = {launch.grid, launch.block,
                          dim3(static_cast<unsigned>(launch.shared_bytes))};
    std::string key = launch.kernel;
    key.append(reinterpret_cast<const char*>(sizes), sizeof sizes);
    key.append(static_cast<const char*>(launch.state), launch.state_bytes);
    if (++s.repeated[key] > most) {
      ++s.skipped;
      return true;
    }
  }
  ++s.launches;
  return false;
}

int last_error(bool forget) {
  State& s = state();
  if (!s.refused.empty()) s.watcher->remark(s.refused.c_str(), s.refused_at);
  s.refused.clear();
  const int error = s.error;
  if (forget) s.error = 0;
  return error;
}
int set_error(int code) {
  if (state().program) state().error = code;
  return code;
}

void not_emulated(const char* what, Place place) {
  stop("absent", std::string(what) + " is called, which is not emulated", place);
}

namespace {

int report = -1;  // the file
pid_t process = 0;
const void* faulted = nullptr;  // the instruction; the other frames have that after a call

// The lines that are known, and the addresses in the program, for which the reader finds lines. A
// place of neither is that of the running code.
std::string text_of(Place place) {
  std::string text;
  const void* frames[64] = {place.address};
  int count = place.address != nullptr ? 1 : 0;
  if (count == 0 && place.file == nullptr) count = backtrace(const_cast<void**>(frames), 64);
  for (int i = 0; i < count; ++i) {
    const auto offset =
        static_cast<const char*>(frames[i]) - state().library + (frames[i] == faulted ? 1 : 0);
    Dl_info where;
    if (dladdr(frames[i], &where) == 0 || where.dli_fbase != state().library) continue;
    char hex[20];
    std::snprintf(hex, sizeof hex, "%zx\x1f", static_cast<size_t>(offset));
    text += hex;
  }
  if (place.file != nullptr) {
    text += "=" + std::string(place.file) + ":" + std::to_string(place.line) + "\x1f";
  }
  return text;
}

void write_record(const std::string& kind, const std::string& text, const std::string& places,
                  const std::string& also = {}, const std::string& also_places = {}) {
  std::string record;
  for (const auto* part : {&kind, &text, &places, &also, &also_places}) {
    record.append(part->c_str(), part->size() + 1);
  }
  if (write(report, record.data(), record.size()) < 0) _exit(3);
}

class Program final : public Watcher {
 public:
  uint64_t seed() override { return number("EMULATED_SEED", 0); }
  uint8_t fill() override { return 0xFF; }
  uint64_t region_count() override { return 0; }
  Region region(uint64_t) override { return {}; }
  bool is_program() override { return true; }
  bool forbids_unwritten() override { return number("EMULATED_UNWRITTEN", 0) == 0; }
  uint64_t repeats() override { return number("EMULATED_REPEATS", UINT64_MAX); }
  void fault(const char* kind, const char* text, Place place, const char* also,
             Place also_place) override {
    const bool both = *also != 0;
    write_record(kind, text, text_of(place), also, both ? text_of(also_place) : std::string());
    std::fflush(nullptr);
    _exit(3);
  }
  void remark(const char* text, Place place) override {
    write_record("note", text, text_of(place));
  }

 private:
  static uint64_t number(const char* name, uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
  }
};

// Opens memory for work on the device, and says what else the program accesses.
bool supply(const void* address, bool writes) {
  State& s = state();
  Watched* found = region_of(address);
  if (s.in_device || s.works) {
    if (found == nullptr || found->own == nullptr) return false;
    const bool reads = found->for_host && !writes && found->allowed == PROT_NONE;
    allow(*found, reads ? PROT_READ : PROT_READ | PROT_WRITE);
    return true;
  }
  if (found == nullptr) {
    found = region_near(address);
    if (found != nullptr) stop_outside(*found, address, 1, writes, nullptr);
    return false;
  }
  const std::string what = std::string("the host ") + (writes ? "wrote" : "read") + " ";
  if (!found->for_host) {
    stop("host", what + found->element(address) + ", which is in the memory of the device", {});
  }
  const bool written = (found->used & PROT_WRITE) != 0;
  stop("race",
       what + found->element(address) + ", which " + found->used_by + " may still be " +
           (written ? "writing" : "reading") + ": call cudaDeviceSynchronize first",
       {}, "the work on the device", found->used_at);
}

void on_signal(int number, siginfo_t* info, void* context) {
  const bool access = number == SIGSEGV || number == SIGBUS;
  bool writes = true;
  const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  writes = (machine.gregs[REG_ERR] & 2) != 0;
  faulted = reinterpret_cast<const void*>(machine.gregs[REG_RIP]);
#elif defined(__aarch64__)
  faulted = reinterpret_cast<const void*>(machine.pc);
#endif
  if (access && supply(info->si_addr, writes)) return;
  const State& s = state();
  std::string text = s.current != nullptr ? name_of(*s.current) : "the host";
  if (number == SIGXCPU) {
    if (s.running != nullptr) text += ", in the launch of " + std::string(s.running->kernel);
    write_record("time", text, text_of({}));
    _exit(3);
  }
  for (const int one : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) signal(one, SIG_DFL);
  char where[64];
  std::snprintf(where, sizeof where, writes ? ": it wrote at %p" : ": it read at %p",
                info->si_addr);
  text += number == SIGABRT  ? " called abort, as a failed assertion does"
          : number == SIGFPE ? " divided an integer by zero"
                             : " crashed with " + std::string(strsignal(number));
  stop("crash", access ? text + where : text, {});
}

void end() {
  State& s = state();
  if (getpid() != process) return;
  if (!s.refused.empty()) stop("launch", "", {});
  write_record("end", std::to_string(s.launches) + " " + std::to_string(s.skipped), "");
}

}  // namespace

Watcher* watch_program() {
  static Program program;
  const char* path = std::getenv("EMULATED_REPORT");
  report = path == nullptr ? -1 : open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
  if (report < 0) return nullptr;
  process = getpid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  void* frame[1];
  backtrace(frame, 1);  // it loads a library, which a signal handler must not
  static char stack[1 << 17];
  stack_t alternate{};
  alternate.ss_sp = stack;
  alternate.ss_size = sizeof stack;
  sigaltstack(&alternate, nullptr);
  struct sigaction action{};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const int one : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGXCPU}) {
    sigaction(one, &action, nullptr);
  }
  std::atexit(end);
  return &program;
}

}  // namespace emulated
