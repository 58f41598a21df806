// Common parts of the gates at PyTorch's own keys: a gate is opened before an operator, and closed.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <string>

namespace {

thread_local std::string message;

// Registers the kernel from `make(dispatcher)` before `name` at `key`. Returns a handle for
// `opsmith_gate_close`, or null after setting `opsmith_gate_error`.
template <typename Make>
void* open_gate(const char* name, c10::DispatchKey key, const char* what, Make&& make) {
  try {
    c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
    auto kernel = c10::KernelFunction::makeFromBoxedFunctor(make(dispatcher));
    return new c10::RegistrationHandleRAII(
        dispatcher.registerImpl({name, ""}, key, std::move(kernel), std::nullopt, nullptr, what));
  } catch (const std::exception& error) {
    message = error.what();
    return nullptr;
  }
}

}  // namespace

extern "C" {

__attribute__((visibility("default"), used)) void opsmith_gate_close(void* gate) {
  delete static_cast<c10::RegistrationHandleRAII*>(gate);
}

__attribute__((visibility("default"), used)) const char* opsmith_gate_error() {
  return message.c_str();
}

}  // extern "C"
