// What the gates at PyTorch's own keys do alike: they are opened before an operator, and closed.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <string>

namespace {

thread_local std::string message;

// Puts what `make(dispatcher)` gives before `name` at `key`; what `opsmith_gate_close` takes, or
// null with `opsmith_gate_error`.
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
