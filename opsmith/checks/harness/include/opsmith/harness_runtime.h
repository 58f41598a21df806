// The interface of the harness's program for a kernel's library. The two are compiled separately,
// and share only this file.
#pragma once

#include <opsmith/abi.h>

#include <cstdint>

namespace opsmith::harness {

// A place in the kernel's code, given by its line or by an address in a library.
struct Place {
  const char* file;
  int line;
  const void* address;
};

// A block of the harness's memory that a kernel may access.
struct Memory {
  const char* name;
  char* data;
  uint64_t size;
  uint64_t element;
  uint64_t guard;  // number of bytes before and behind that must not be accessed
  bool written;    // whether it holds values
  bool read_only;
  bool vast;  // mapped again and again
};

class Runtime {
 public:
  // Sets what the memory of tensors that are read from now on begins at a multiple of, in bytes.
  virtual void align(uint64_t alignment) = 0;
  // Reads the next argument, in the order of the declaration; one overload for each type of member
  // in an operator's `_raw` struct.
  virtual void read(const DLTensor*& tensor) = 0;
  virtual void read(raw_tensors& tensors) = 0;
  virtual void read(int64_t& number) = 0;
  virtual void read(double& number) = 0;
  virtual void read(uint8_t& flag) = 0;
  virtual void read(raw_string& text) = 0;
  virtual void read(raw_ints& numbers) = 0;
  virtual void read(raw_floats& numbers) = 0;
  virtual void read(raw_bools& flags) = 0;
  virtual void read(raw_optional_int& number) = 0;
  virtual void read(raw_optional_float& number) = 0;
  virtual void read(raw_optional_bool& flag) = 0;

  // Sets the device type of tensors from now on; at first, it is the host's.
  virtual void on_device(int32_t device_type) = 0;
  // The call's stream, of no meaning but that it is not the default one; null on the CPU.
  virtual void* stream() = 0;

  // Sets the names of results in messages, by position; the names live as long as the call.
  virtual void name_results(const char* const* names, int32_t count) = 0;

  // Memory for a result, filled with a pattern that the kernel must replace.
  virtual const DLTensor* result(int32_t position, DLDataType dtype, int32_t ndim,
                                 const int64_t* sizes) = 0;

  virtual void parallel_for(int64_t begin, int64_t end,
                            void (*body)(int64_t begin, int64_t end, void* state), void* state) = 0;
  virtual int32_t num_threads() = 0;
  virtual void* scratch(uint64_t bytes) = 0;

  // For emulated kernels, which watch their own accesses. `fault` ends the process; `also`, if not
  // empty, is a message about a second place. A remark may explain a wrong result.
  virtual uint64_t seed() = 0;
  virtual uint8_t fill() = 0;
  virtual uint64_t memory_count() = 0;
  virtual Memory memory(uint64_t number) = 0;
  virtual void fault(const char* text, Place place, const char* also, Place also_place) = 0;
  virtual void remark(const char* text, Place place) = 0;

 protected:
  ~Runtime() = default;
};

}  // namespace opsmith::harness
