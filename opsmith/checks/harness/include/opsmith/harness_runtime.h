// What the harness's program offers to a kernel's library. The two are compiled apart, and share
// this file alone.
#pragma once

#include <opsmith/abi.h>

#include <cstdint>

namespace opsmith::harness {

// A place in the kernel's code: by its line, or by an address in a library.
struct Place {
  const char* file;
  int line;
  const void* address;
};

// What a kernel may touch, of the memory that the harness gave it.
struct Memory {
  const char* name;
  char* data;
  uint64_t size;
  uint64_t element;
  uint64_t guard;  // so many bytes before and behind are nobody's
  bool written;    // whether it holds values
  bool read_only;
};

class Runtime {
 public:
  // The next argument, in the order of the declaration; one overload for each type of member that
  // an operator's `_raw` struct has.
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

  // Of which device type the memory is from now on; the host's at first.
  virtual void on_device(int32_t device_type) = 0;

  // What messages call the results, by position; the names live as long as the call.
  virtual void name_results(const char* const* names, int32_t count) = 0;

  // Memory for a result, filled with a pattern that the kernel must replace.
  virtual const DLTensor* result(int32_t position, DLDataType dtype, int32_t ndim,
                                 const int64_t* sizes) = 0;

  virtual void parallel_for(int64_t begin, int64_t end,
                            void (*body)(int64_t begin, int64_t end, void* state), void* state) = 0;
  virtual int32_t num_threads() = 0;
  virtual void* scratch(uint64_t bytes) = 0;

  // For kernels that watch themselves, as emulated ones do. `fault` ends the process; `also` is a
  // second place, if it has words. A remark may explain a wrong result.
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
