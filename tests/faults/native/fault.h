// What every file here includes. NAME is the operator's, and WRONG is defined for the wrong twin.
#pragma once

#include <opsmith/kernel.h>

#define FAULT_TEXT_(text) #text
#define FAULT_TEXT(text) FAULT_TEXT_(text)
#define FAULT_JOIN_(a, b) a##b
#define FAULT_JOIN(a, b) FAULT_JOIN_(a, b)

#include FAULT_TEXT(NAME.h)

#ifdef WRONG
#define TWIN(wrong, right) wrong
#else
#define TWIN(wrong, right) right
#endif

// Begins a kernel without a generic dtype, which sees `ctx` and `a`.
#define KERNEL                                                                 \
  void NAME(const opsmith::Context&, const faults::FAULT_JOIN(NAME, _args) &); \
  FAULT_REGISTER(NAME)                                                         \
  void NAME([[maybe_unused]] const opsmith::Context& ctx,                      \
            [[maybe_unused]] const faults::FAULT_JOIN(NAME, _args) & a)
#define FAULT_REGISTER(name, ...) OPSMITH_KERNEL(faults, name, cpu __VA_OPT__(, ) __VA_ARGS__)
