// What is said when a kernel touches memory that is not its own, and from where.
#pragma once

#include "memory.h"
#include "stream.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <ucontext.h>

#include <cstdio>
#include <string>

namespace opsmith::harness {

inline const Memory* watched = nullptr;   // the running call's
inline std::FILE* report_file = nullptr;  // where the words go

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

// The process is about to end; what was written of the results before is already in the file.
inline void on_fault(int number, siginfo_t* info, void* context) {
  signal(number, SIG_DFL);
  std::string text;
  const bool access = number == SIGSEGV || number == SIGBUS;
  const char* verb = was_write(context) ? "wrote" : "read";
#if !defined(__x86_64__)
  verb = "accessed memory";
#endif
  if (access && watched != nullptr) {
    for (const Block& block : watched->blocks()) {
      if (block.near(info->si_addr)) text = Memory::describe(block, info->si_addr, verb);
    }
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
  std::vector<std::string> places;
  for (int i = 0; i < count; ++i) {
    Dl_info where;
    if (dladdr(frames[i], &where) == 0 || where.dli_fname == nullptr) continue;
    char line[64];
    std::snprintf(
        line, sizeof line, "%zx ",
        static_cast<size_t>(static_cast<char*>(frames[i]) - static_cast<char*>(where.dli_fbase)));
    places.push_back(line + std::string(where.dli_fname));
  }
  out.put<uint32_t>(static_cast<uint32_t>(places.size()));
  for (const std::string& place : places) out.text(place);
  out.flush(report_file);
  _exit(3);
}

inline void watch_faults(std::FILE* file) {
  report_file = file;
  // The first call loads a library, which a handler must not do.
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
