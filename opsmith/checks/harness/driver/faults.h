// Reports accesses of a kernel to memory that is not its own, with their places.
#pragma once

#include "meeting.h"
#include "memory.h"
#include "pause.h"
#include "stream.h"

#include <opsmith/harness_runtime.h>

#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <ucontext.h>

#include <cstdio>
#include <string>

namespace opsmith::harness {

inline const GuardedMemory* watched = nullptr;  // the memory of the running call
inline std::atomic<Pause*> pausing{nullptr};    // the pause of calls that run at the same time
inline std::FILE* report_file = nullptr;        // the file for messages

inline bool was_write(const void* context) {
#if defined(__x86_64__)
  return (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#else
  (void)context;
  return false;
#endif
}

inline const char* signal_name(int number) {
  switch (number) {
    case SIGSEGV:
      return "SIGSEGV";
    case SIGBUS:
      return "SIGBUS";
    case SIGFPE:
      return "SIGFPE";
    case SIGILL:
      return "SIGILL";
    default:
      return "SIGABRT";
  }
}

// Writes "address library", for which Python finds the line, and "=file:line" if a line is known.
inline void put_places(Writer& out, const std::vector<Place>& places) {
  std::vector<std::string> texts;
  for (const Place& place : places) {
    Dl_info where;
    if (dladdr(place.address, &where) != 0 && where.dli_fname != nullptr) {
      char line[64];
      std::snprintf(line, sizeof line, "%zx ",
                    static_cast<size_t>(static_cast<const char*>(place.address) -
                                        static_cast<const char*>(where.dli_fbase)));
      texts.push_back(line + std::string(where.dli_fname));
    }
    if (place.file != nullptr) {
      texts.push_back("=" + std::string(place.file) + ":" + std::to_string(place.line));
    }
  }
  out.put<uint32_t>(static_cast<uint32_t>(texts.size()));
  for (const std::string& text : texts) out.text(text);
}

// Handles a fatal signal. Earlier results are already in the file.
inline void on_fault(int number, siginfo_t* info, void* context) {
  Pause* pause = pausing.load();
  if (number == SIGSEGV && pause != nullptr && pause->wait_at(info->si_addr)) return;
  Meeting* met = meeting.load();
  if (number == SIGSEGV && met != nullptr && met->wait_at(info->si_addr)) return;
  if (number == SIGSEGV && watched != nullptr && watched->supply(info->si_addr)) return;
  signal(number, SIG_DFL);
  std::string text;
  const bool access = number == SIGSEGV || number == SIGBUS;
  const char* verb = was_write(context) ? "wrote" : "read";
#if !defined(__x86_64__)
  verb = "accessed memory";
#endif
  if (access && watched != nullptr) {
    for (const Block& block : watched->blocks()) {
      if (block.near(info->si_addr)) text = GuardedMemory::describe(block, info->si_addr, verb);
    }
    for (const Block& block : GuardedMemory::released) {
      if (block.near(info->si_addr))
        text = std::string(verb) + " scratch memory of an earlier call";
    }
    if (watched->has_scratch_of_ends()) text = "takes scratch memory, of which only the ends ran";
  }
  if (text.empty() && number == SIGFPE) text = "divided an integer by zero";
  if (text.empty()) {
    char address[32];
    std::snprintf(address, sizeof address, "%p", info->si_addr);
    text = std::string("crashed with ") + signal_name(number);
    if (access) text += std::string(", ") + verb + " at " + address;
  }
  Writer out;
  out.put<uint8_t>('F');
  out.text(text);
  void* frames[64];
  const int count = backtrace(frames, 64);
  std::vector<Place> places;
  for (int i = 0; i < count; ++i) places.push_back({nullptr, 0, frames[i]});
  put_places(out, places);
  out.text("");
  put_places(out, {});
  out.flush(report_file);
  _exit(3);
}

inline void watch_faults(std::FILE* file) {
  report_file = file;
  // The first call of backtrace loads a library, which is not allowed in a signal handler.
  void* frame[1];
  backtrace(frame, 1);
  static char stack[1 << 16];
  stack_t alternate{};
  alternate.ss_sp = stack;
  alternate.ss_size = sizeof stack;
  sigaltstack(&alternate, nullptr);
  struct sigaction action{};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    sigaction(number, &action, nullptr);
  }
}

}  // namespace opsmith::harness
