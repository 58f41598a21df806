// Runs one call of an operator on the host's threads.
#pragma once

#include <opsmith/detail/show.h>
#include <opsmith/hosted/host.h>
#include <opsmith/hosted/threads.h>

#include <exception>
#include <string>
#include <utility>

namespace opsmith::hosted {

// What a call left: its status, and the message or the error of one that failed. After an error of
// `allocate` the message is the shape of the result.
struct Outcome {
  int32_t status;
  std::string message;
  std::exception_ptr error;
};

// `allocate(position, dtype, ndim, sizes)` gives the memory of a result; called from any thread.
template <typename Allocate>
Outcome run(Entry entry, const opsmith_argument* given, Allocate allocate) {
  struct Running {
    Allocate& allocate;
    Outcome outcome;
  } running{allocate, {}};
  const Host host{
      &running,
      [](void* self, const char* text, uint64_t size) {
        static_cast<Running*>(self)->outcome.message.assign(text, size);
      },
      [](void* self, int32_t position, DLDataType dtype, int32_t ndim,
         const int64_t* sizes) -> const DLTensor* {
        Running& call = *static_cast<Running*>(self);
        try {
          return call.allocate(position, dtype, ndim, sizes);
        } catch (...) {
          call.outcome.message = detail::show(sizes, ndim);
          call.outcome.error = std::current_exception();
          return nullptr;
        }
      },
      [](void*, int64_t begin, int64_t end, int64_t grain, void (*body)(int64_t, int64_t, void*),
         void* state) { Threads::run(begin, end, grain, body, state); },
      [](void*) { return Threads::number(); }};
  running.outcome.status = entry(given, &host);
  return std::move(running.outcome);
}

}  // namespace opsmith::hosted
