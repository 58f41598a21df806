// What a tvm-ffi module knows of an operator; module.cpp.j2 writes it.
#pragma once

#include <opsmith/hosted/host.h>
#include <tvm/ffi/c_api.h>

namespace opsmith::tvm_ffi {

struct Parameter {
  const char* name;
  const char* type;
  const char* item;  // the type of an item; empty unless it is a list
  hosted::Kind kind;
  bool optional;
};

struct Operator {
  const char* name;
  hosted::Entry entry;
  int32_t arguments;
  int32_t results;
  const Parameter* parameters;  // the arguments, then the memory of each result
};

// Calls an operator by tvm-ffi's C ABI: with its arguments alone, which returns its results, or
// with a tensor for each result behind them, which is written.
int call(const Operator& op, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) noexcept;

}  // namespace opsmith::tvm_ffi
