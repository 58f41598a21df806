// Errors of a library that includes its C++ runtime, as the libraries in wheels do, so that it runs
// beside any other runtime. PyTorch's runtime cannot catch exceptions of such a runtime, so
// PyTorch's own runtime has to throw them.
#pragma once

#include <opsmith/detail/adapter.h>

#include <dlfcn.h>

#include <cstdio>
#include <string>

namespace opsmith::detail {

// The message of an error, null without one. The text is in plain memory of the thread: when
// PyTorch's runtime throws, no code runs here that could release memory.
template <typename Body>
[[gnu::noinline]] const char* kept_failure(const char* op, Body&& body) noexcept {
  thread_local char text[4096];
  const std::string message = failure(op, body);
  if (message.empty()) return nullptr;
  std::snprintf(text, sizeof text, "%s", message.c_str());
  return text;
}

// The function of PyTorch's C++ runtime that throws a std::runtime_error.
[[gnu::noinline]] inline auto throws_there() noexcept -> void (*)(const char*) {
  // libtorch depends on it, so it is loaded.
  void* const runtime = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
  void* const found =
      runtime == nullptr ? nullptr : dlsym(runtime, "_ZSt21__throw_runtime_errorPKc");
  if (found == nullptr) {
    return [](const char* message) { throw call_error(message); };
  }
  return reinterpret_cast<void (*)(const char*)>(found);
}

}  // namespace opsmith::detail
