// Has a whole program be watched from before its first constructor to its end.
#pragma once

#include <emulated/runtime.h>
#include <pthread.h>

namespace emulated {

// The watcher of the program, which writes to the file that EMULATED_REPORT names; else null.
OPSMITH_EMULATED_EXPORT Watcher* watch_program();

}  // namespace emulated

#ifdef OPSMITH_WHOLE_PROGRAM
namespace {
// A call begins in the program's own code, by which its variables are known.
[[gnu::constructor(101)]] void opsmith_begin_program() {
  emulated::begin_call(emulated::watch_program());
}
}  // namespace
// Of libraries' calls too, as of std::thread's.
extern "C" int pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*) noexcept {
  emulated::not_emulated("pthread_create, which starts a second thread of the host,", {});
}
#endif
