// Common parts of the gates at PyTorch's own keys: a gate is opened before an operator, and closed.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>

#include <memory>
#include <string>

namespace {

thread_local std::string message;

struct Opened {
  c10::RegistrationHandleRAII registration;
  std::shared_ptr<const void> kept;  // what the gate can be asked for
};

// Registers the kernel from `make(dispatcher)` before `name` at `key`. Returns an `Opened` for
// `opsmith_gate_close`, or null after setting `opsmith_gate_error`.
template <typename Make>
void* open_gate(const char* name, c10::DispatchKey key, const char* what, Make&& make,
                std::shared_ptr<const void> kept = nullptr) {
  try {
    c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
    auto kernel = c10::KernelFunction::makeFromBoxedFunctor(make(dispatcher));
    return new Opened{dispatcher.registerImpl(torch::jit::parseName(name), key, std::move(kernel),
                                              std::nullopt, nullptr, what),
                      std::move(kept)};
  } catch (const std::exception& error) {
    message = error.what();
    return nullptr;
  }
}

// Visits the tensors of an argument, also those in lists.
template <typename Visit>
void each_tensor(const c10::IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) each_tensor(element, visit);
  }
}

}  // namespace

extern "C" {

__attribute__((visibility("default"), used)) void opsmith_gate_close(void* gate) {
  delete static_cast<Opened*>(gate);
}

__attribute__((visibility("default"), used)) const char* opsmith_gate_error() {
  return message.c_str();
}

}  // extern "C"
