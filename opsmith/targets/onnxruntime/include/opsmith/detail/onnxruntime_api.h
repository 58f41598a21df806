// Accesses ONNX Runtime's C interface by position, and registers operators with it.
//
// The onnxruntime wheel contains no headers. Its C interface is a table of functions that only
// grows at the end, so a position always means the same function; a self-test at load time detects
// if it does not.
#pragma once

#include <opsmith/detail/values.h>

#include <cstdio>
#include <cstring>
#include <iterator>
#include <mutex>
#include <string>

namespace opsmith::ort {

// ONNX Runtime's own objects, which are opaque here.
struct Status;
struct Value;
struct TypeInfo;  // element type and shape
struct MemoryInfo;
struct Allocator;
struct SessionOptions;
struct Domain;
struct KernelInfo;
struct KernelContext;
struct ShapeContext;
struct Attribute;
struct CustomOp;

// The oldest interface with all of these functions; ONNX Runtime 1.18.
inline constexpr uint32_t api_version = 18;

#define OPSMITH_ORT_API(X)                                                                      \
  X(0, Status*, CreateStatus, (int32_t code, const char* message))                              \
  X(1, int32_t, GetErrorCode, (const Status*))                                                  \
  X(2, const char*, GetErrorMessage, (const Status*))                                           \
  X(26, Status*, CreateCustomOpDomain, (const char* name, Domain**))                            \
  X(27, Status*, CustomOpDomain_Add, (Domain*, const CustomOp*))                                \
  X(28, Status*, AddCustomOpDomain, (SessionOptions*, Domain*))                                 \
  X(51, Status*, GetTensorMutableData, (Value*, void** data))                                   \
  X(57, Status*, CreateTensorTypeAndShapeInfo, (TypeInfo**))                                    \
  X(58, Status*, SetTensorElementType, (TypeInfo*, int32_t type))                               \
  X(59, Status*, SetDimensions, (TypeInfo*, const int64_t* sizes, size_t count))                \
  X(60, Status*, GetTensorElementType, (const TypeInfo*, int32_t* type))                        \
  X(61, Status*, GetDimensionsCount, (const TypeInfo*, size_t* count))                          \
  X(62, Status*, GetDimensions, (const TypeInfo*, int64_t* sizes, size_t count))                \
  X(63, Status*, GetSymbolicDimensions, (const TypeInfo*, const char** names, size_t count))    \
  X(64, Status*, GetTensorShapeElementCount, (const TypeInfo*, size_t* count))                  \
  X(65, Status*, GetTensorTypeAndShape, (const Value*, TypeInfo**))                             \
  X(72, Status*, MemoryInfoGetId, (const MemoryInfo*, int32_t* id))                             \
  X(76, Status*, AllocatorFree, (Allocator*, void*))                                            \
  X(77, Status*, AllocatorGetInfo, (const Allocator*, const MemoryInfo**))                      \
  X(85, Status*, KernelInfoGetAttribute_float, (const KernelInfo*, const char* name, float*))   \
  X(86, Status*, KernelInfoGetAttribute_int64, (const KernelInfo*, const char* name, int64_t*)) \
  X(87, Status*, KernelInfoGetAttribute_string,                                                 \
    (const KernelInfo*, const char* name, char* text, size_t* size))                            \
  X(88, Status*, KernelContext_GetInputCount, (const KernelContext*, size_t* count))            \
  X(90, Status*, KernelContext_GetInput, (const KernelContext*, size_t index, const Value**))   \
  X(91, Status*, KernelContext_GetOutput,                                                       \
    (KernelContext*, size_t index, const int64_t* sizes, size_t count, Value**))                \
  X(93, void, ReleaseStatus, (Status*))                                                         \
  X(99, void, ReleaseTensorTypeAndShapeInfo, (TypeInfo*))                                       \
  X(101, void, ReleaseCustomOpDomain, (Domain*))                                                \
  X(132, void, ReleaseAllocator, (Allocator*))                                                  \
  X(162, Status*, KernelInfoGetAttributeArray_float,                                            \
    (const KernelInfo*, const char* name, float* items, size_t* count))                         \
  X(163, Status*, KernelInfoGetAttributeArray_int64,                                            \
    (const KernelInfo*, const char* name, int64_t* items, size_t* count))                       \
  X(193, Status*, KernelContext_GetGPUComputeStream, (const KernelContext*, void** stream))     \
  X(194, Status*, GetTensorMemoryInfo, (const Value*, const MemoryInfo**))                      \
  X(225, void, MemoryInfoGetDeviceType, (const MemoryInfo*, int32_t* type))                     \
  X(267, Status*, ShapeInferContext_GetInputCount, (const ShapeContext*, size_t* count))        \
  X(268, Status*, ShapeInferContext_GetInputTypeShape,                                          \
    (const ShapeContext*, size_t index, TypeInfo**))                                            \
  X(269, Status*, ShapeInferContext_GetAttribute,                                               \
    (const ShapeContext*, const char* name, const Attribute**))                                 \
  X(270, Status*, ShapeInferContext_SetOutputTypeShape,                                         \
    (const ShapeContext*, size_t index, const TypeInfo*))                                       \
  X(271, Status*, SetSymbolicDimensions, (TypeInfo*, const char** names, size_t count))         \
  X(272, Status*, ReadOpAttr,                                                                   \
    (const Attribute*, int32_t type, void* data, size_t size, size_t* needed))                  \
  X(274, Status*, KernelContext_ParallelFor,                                                    \
    (const KernelContext*, void (*body)(void*, size_t), size_t total, size_t batches, void*))   \
  X(277, Status*, KernelContext_GetScratchBuffer,                                               \
    (const KernelContext*, const MemoryInfo*, size_t bytes, void**))                            \
  X(278, Status*, KernelInfoGetAllocator, (const KernelInfo*, int32_t memory, Allocator**))

struct Api {
#define OPSMITH_ORT_MEMBER(position, result, name, parameters) result(*name) parameters = nullptr;
  OPSMITH_ORT_API(OPSMITH_ORT_MEMBER)
#undef OPSMITH_ORT_MEMBER
};

// The table as ONNX Runtime provides it.
struct ApiBase {
  const void* const* (*GetApi)(uint32_t version);
  const char* (*GetVersionString)();
};

inline Api& api() {
  static Api functions;
  return functions;
}

class failure : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Turns a status into an exception.
inline void check(Status* status) {
  if (status == nullptr) return;
  const std::string message = api().GetErrorMessage(status);
  api().ReleaseStatus(status);
  throw failure(message);
}

// Returns whether a call succeeded, and discards the error.
inline bool succeeds(Status* status) {
  if (status == nullptr) return true;
  api().ReleaseStatus(status);
  return false;
}

// Fills api() from the table, and tests what can be tested without a session. Returns the problem,
// if any.
inline std::string take_api(const void* const* table) {
  Api& found = api();
#define OPSMITH_ORT_TAKE(position, result, name, parameters)          \
  if (table[position] == nullptr) return "it has no function " #name; \
  found.name = reinterpret_cast<result(*) parameters>(reinterpret_cast<uintptr_t>(table[position]));
  OPSMITH_ORT_API(OPSMITH_ORT_TAKE)
#undef OPSMITH_ORT_TAKE

  Status* status = found.CreateStatus(6, "opsmith");
  if (status == nullptr || found.GetErrorCode(status) != 6 ||
      std::strcmp(found.GetErrorMessage(status), "opsmith") != 0) {
    return "a status does not hold what was put into it";
  }
  found.ReleaseStatus(status);

  TypeInfo* info = nullptr;
  const int64_t sizes[] = {2, 3, 5};
  int64_t read[3] = {};
  int32_t type = 0;
  size_t count = 0;
  size_t elements = 0;
  const bool ran = succeeds(found.CreateTensorTypeAndShapeInfo(&info)) && info != nullptr &&
                   succeeds(found.SetTensorElementType(info, 11)) &&
                   succeeds(found.SetDimensions(info, sizes, 3)) &&
                   succeeds(found.GetTensorElementType(info, &type)) &&
                   succeeds(found.GetDimensionsCount(info, &count)) && count == 3 &&
                   succeeds(found.GetDimensions(info, read, 3)) &&
                   succeeds(found.GetTensorShapeElementCount(info, &elements));
  if (!ran || type != 11 || elements != 30 || !std::equal(read, read + 3, sizes)) {
    return "a shape does not hold what was put into it";
  }
  found.ReleaseTensorTypeAndShapeInfo(info);
  return "";
}

struct CustomOp {
  uint32_t version;
  void* (*CreateKernel)(const CustomOp*, const void*, const KernelInfo*);
  const char* (*GetName)(const CustomOp*);
  const char* (*GetExecutionProviderType)(const CustomOp*);
  int32_t (*GetInputType)(const CustomOp*, size_t);
  size_t (*GetInputTypeCount)(const CustomOp*);
  int32_t (*GetOutputType)(const CustomOp*, size_t);
  size_t (*GetOutputTypeCount)(const CustomOp*);
  void (*KernelCompute)(void*, KernelContext*);
  void (*KernelDestroy)(void*);
  int32_t (*GetInputCharacteristic)(const CustomOp*, size_t);
  int32_t (*GetOutputCharacteristic)(const CustomOp*, size_t);
  int32_t (*GetInputMemoryType)(const CustomOp*, size_t);
  int (*GetVariadicInputMinArity)(const CustomOp*);
  int (*GetVariadicInputHomogeneity)(const CustomOp*);
  int (*GetVariadicOutputMinArity)(const CustomOp*);
  int (*GetVariadicOutputHomogeneity)(const CustomOp*);
  Status* (*CreateKernelV2)(const CustomOp*, const void*, const KernelInfo*, void**);
  Status* (*KernelComputeV2)(void*, KernelContext*);
  Status* (*InferOutputShapeFn)(const CustomOp*, ShapeContext*);
  int (*GetStartVersion)(const CustomOp*);
  int (*GetEndVersion)(const CustomOp*);
  size_t (*GetMayInplace)(int**, int**);
  void (*ReleaseMayInplace)(int*, int*);
  size_t (*GetAliasMap)(int**, int**);
  void (*ReleaseAliasMap)(int*, int*);
};
static_assert(sizeof(CustomOp) == 208, "the layout that ONNX Runtime knows");

inline constexpr int32_t required = 0;
inline constexpr int32_t optional = 1;
inline constexpr int32_t variadic = 2;

// The description of an input or output for ONNX Runtime; type 0 means any.
struct Port {
  int32_t type;
  int32_t characteristic;
};

// The element types of ONNX by their numbers; type 0 and strings have no dtype.
inline DLDataType dtype_of(int32_t type) {
  constexpr DLDataType dtypes[] = {
      {255, 0, 1},  // UNDEFINED
      {2, 32, 1},   // FLOAT
      {1, 8, 1},    // UINT8
      {0, 8, 1},    // INT8
      {1, 16, 1},   // UINT16
      {0, 16, 1},   // INT16
      {0, 32, 1},   // INT32
      {0, 64, 1},   // INT64
      {255, 0, 1},  // STRING
      {6, 8, 1},    // BOOL
      {2, 16, 1},   // FLOAT16
      {2, 64, 1},   // DOUBLE
      {1, 32, 1},   // UINT32
      {1, 64, 1},   // UINT64
      {5, 64, 1},   // COMPLEX64
      {5, 128, 1},  // COMPLEX128
      {4, 16, 1},   // BFLOAT16
      {10, 8, 1},   // FLOAT8E4M3FN
      {11, 8, 1},   // FLOAT8E4M3FNUZ
      {12, 8, 1},   // FLOAT8E5M2
      {13, 8, 1},   // FLOAT8E5M2FNUZ
  };
  return dtypes[type >= 0 && type < static_cast<int32_t>(std::size(dtypes)) ? type : 0];
}

// Loads the functions of this ONNX Runtime; returns an error if opsmith does not support its
// version.
inline Status* begin(const ApiBase* base, const char* op_name) noexcept {
  const void* const* table = base->GetApi(api_version);
  if (table == nullptr) {
    // Even an older table has the function that creates an error.
    const void* const* oldest = base->GetApi(1);
    if (oldest == nullptr) return nullptr;
    const auto create =
        reinterpret_cast<Status* (*)(int32_t, const char*)>(reinterpret_cast<uintptr_t>(oldest[0]));
    return create(1, "opsmith: this operator needs ONNX Runtime 1.18 or newer");
  }
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  const std::string wrong = take_api(table);
  if (wrong.empty()) return nullptr;
  const std::string message =
      detail::join(op_name, ": this ONNX Runtime (", base->GetVersionString(),
                   ") is not laid out as opsmith knows it: ", wrong,
                   ". Use another version of it, or export with a newer opsmith.");
  // Print the text as well, in case even the status has another layout.
  std::fprintf(stderr, "%s\n", message.c_str());
  return api().CreateStatus(1, message.c_str());
}

// Adds operators to a session, for `RegisterCustomOps`. Never throws.
inline Status* add_operators(SessionOptions* options, const char* domain_name,
                             const CustomOp* const* ops, size_t count) noexcept {
  static std::mutex mutex;
  static Domain* domain = nullptr;
  const std::lock_guard<std::mutex> lock(mutex);
  try {
    // Sessions use the domain as long as they live, so it is never freed.
    if (domain == nullptr) {
      check(api().CreateCustomOpDomain(domain_name, &domain));
      for (size_t i = 0; i < count; ++i) check(api().CustomOpDomain_Add(domain, ops[i]));
    }
    return api().AddCustomOpDomain(options, domain);
  } catch (const std::exception& error) {
    return api().CreateStatus(1, error.what());
  }
}

}  // namespace opsmith::ort
