// The C interface between a kernel and a runtime: plain structs, without the runtime's types.
//
// Kernel authors include <opsmith/kernel.h> instead. Adapters fill these structs; the kernel's
// entry point (made by OPSMITH_KERNEL) reads them. New fields are only ever added at the end; every
// other change raises `interface_version`.
#pragma once

#include <cstddef>
#include <cstdint>

namespace opsmith {

inline constexpr uint32_t interface_version = 1;

// What a kernel's entry point returns where it was not compiled for the call's dtypes; 0 on success
// and 1 for every other failure.
inline constexpr int32_t no_such_dtypes = 2;

// The beginning of an argument header's `<namespace>__<name>_raw`, in every version.
struct raw_head {
  uint32_t version;     // interface_version of the code that filled it
  uint32_t size;        // of the whole struct, in bytes
  const char* opsmith;  // the release that wrote the caller's headers, as "0.1.0"
};

// DLPack's types, field by field, in a namespace so that a source may include dlpack.h as well.
struct DLDevice {
  int32_t device_type;  // 1 CPU, 2 CUDA, …: DLPack's numbers
  int32_t device_id;
};

struct DLDataType {
  uint8_t code;  // 0 int, 1 unsigned, 2 float, 4 bfloat, 5 complex, 6 bool
  uint8_t bits;
  uint16_t lanes;  // always 1
};

struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;      // in elements; adapters always fill it
  uint64_t byte_offset;  // always 0: `data` points at the first element
};

// The device types that every library supports: PyTorch's name, the number in DLPack, and the
// dispatch key.
#define OPSMITH_DEVICES(ROW) \
  ROW(cpu, 1, CPU)           \
  ROW(cuda, 2, CUDA)
#define OPSMITH_NUMBER(name, number, key) inline constexpr int32_t device_##name = number;
OPSMITH_DEVICES(OPSMITH_NUMBER)
#undef OPSMITH_NUMBER

// The one further device type that a library supports, which the build chooses.
#ifndef OPSMITH_EXTENSION_TYPE
#define OPSMITH_EXTENSION_TYPE 12
#define OPSMITH_EXTENSION_NAME privateuseone
#define OPSMITH_EXTENSION_TORCH_TYPE aoti_torch_device_type_privateuse1
#endif
#define OPSMITH_STRING_OF(name) #name
#define OPSMITH_STRING(name) OPSMITH_STRING_OF(name)
inline constexpr int32_t device_extension = OPSMITH_EXTENSION_TYPE;
inline constexpr const char* device_extension_name = OPSMITH_STRING(OPSMITH_EXTENSION_NAME);

// The types of the fields of `<namespace>__<name>_raw`, besides int64_t and double.
struct raw_tensors {
  int64_t count;  // -1: None was passed
  const DLTensor* items;
};

struct raw_ints {
  int64_t count;  // -1: None was passed
  const int64_t* items;
};

struct raw_floats {
  int64_t count;
  const double* items;
};

struct raw_bools {
  int64_t count;
  const uint8_t* items;
};

struct raw_string {
  const char* data;  // null: None was passed
  int64_t size;
};

struct raw_optional_int {
  uint8_t present;
  int64_t value;
};

struct raw_optional_float {
  uint8_t present;
  double value;
};

struct raw_optional_bool {
  uint8_t present;
  uint8_t value;
};

// The runtime of a call.
struct opsmith_context {
  // These four fields come first in every version, so that an incompatible caller and kernel can
  // report that they do not fit.
  uint32_t version = interface_version;
  uint32_t size = sizeof(opsmith_context);

  void* self;  // passed back to every function below

  // Records the message of a call that failed.
  void (*fail)(void* self, const char* message, uint64_t size);

  // Runs `body` over [begin, end) on the runtime's threads, in pieces of about `grain`, each worth
  // a thread. Null if the runtime has no threads. `body` does not throw.
  void (*parallel_for)(void* self, int64_t begin, int64_t end, int64_t grain,
                       void (*body)(int64_t begin, int64_t end, void* state), void* state);

  int32_t (*num_threads)(void* self);

  // Allocates memory on the call's device, aligned to 64 bytes and freed after the call; null if
  // there is no memory left. May be called from several threads.
  void* (*scratch)(void* self, uint64_t bytes);

  // Allocates the result at position `result` (data-dependent results only) and describes it in
  // `tensor`, whose `shape` stays valid for the call. If the result is not 0, `fail` has received
  // the reason.
  int32_t (*allocate)(void* self, int32_t result, DLDataType dtype, int32_t ndim,
                      const int64_t* sizes, DLTensor* tensor);

  // The device's current stream, in the type of the device's library (a cudaStream_t, an
  // aclrtStream); null on the CPU, an error where PyTorch cannot tell.
  void* (*stream)(void* self);

  // If not 0, `parallel_for` passes every loop to the runtime, however small. The checks use this
  // to cut loops into pieces. A caller whose context ends before this field receives only loops
  // that are worth a thread.
  uint32_t every_loop = 0;
};

// The size of the context that a kernel requires; a caller of an earlier release has no more
// fields.
inline constexpr uint32_t least_context_size = offsetof(opsmith_context, every_loop);

}  // namespace opsmith
