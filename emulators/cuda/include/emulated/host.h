// The few functions of CUDA's runtime that host code of kernels calls.
#pragma once

#include <emulated/runtime.h>

#include <cstring>
#include <new>
#include <tuple>
#include <type_traits>
#include <utility>

#define OPSMITH_ERRORS(X)                                               \
  X(Success, 0, "no error")                                             \
  X(ErrorInvalidValue, 1, "invalid argument")                           \
  X(ErrorMemoryAllocation, 2, "out of memory")                          \
  X(ErrorInitializationError, 3, "initialization error")                \
  X(ErrorInvalidConfiguration, 9, "invalid configuration argument")     \
  X(ErrorInvalidSymbol, 13, "invalid device symbol")                    \
  X(ErrorInsufficientDriver, 35, "CUDA driver version is insufficient") \
  X(ErrorInvalidDeviceFunction, 98, "invalid device function")          \
  X(ErrorNoDevice, 100, "no CUDA-capable device is detected")           \
  X(ErrorInvalidDevice, 101, "invalid device ordinal")                  \
  X(ErrorInvalidResourceHandle, 400, "invalid resource handle")         \
  X(ErrorNotReady, 600, "device not ready")                             \
  X(ErrorIllegalAddress, 700, "an illegal memory access")               \
  X(ErrorLaunchOutOfResources, 701, "too many resources for launch")    \
  X(ErrorAssert, 710, "device-side assert triggered")                   \
  X(ErrorLaunchFailure, 719, "unspecified launch failure")              \
  X(ErrorNotSupported, 801, "operation not supported")                  \
  X(ErrorUnknown, 999, "unknown error")
#define OPSMITH_ERROR(name, number, text) cuda##name = number,
enum cudaError_t { OPSMITH_ERRORS(OPSMITH_ERROR) };
#undef OPSMITH_ERROR
using cudaError = cudaError_t;
using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault,
};
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9,
};
enum cudaFuncCache {
  cudaFuncCachePreferNone,
  cudaFuncCachePreferShared,
  cudaFuncCachePreferL1,
  cudaFuncCachePreferEqual,
};
// The number of each attribute, and its value, as a property `is` or not.
#define OPSMITH_ATTRIBUTES(X)                                            \
  X(MaxThreadsPerBlock, 1, is.maxThreadsPerBlock)                        \
  X(MaxSharedMemoryPerBlock, 8, is.sharedMemPerBlock)                    \
  X(WarpSize, 10, is.warpSize)                                           \
  X(ClockRate, 13, is.clockRate)                                         \
  X(MultiProcessorCount, 16, is.multiProcessorCount)                     \
  X(Integrated, 18, is.integrated)                                       \
  X(ComputeMode, 20, is.computeMode)                                     \
  X(MaxThreadsPerMultiProcessor, 39, is.maxThreadsPerMultiProcessor)     \
  X(ComputeCapabilityMajor, 75, is.major)                                \
  X(ComputeCapabilityMinor, 76, is.minor)                                \
  X(MaxSharedMemoryPerMultiprocessor, 81, is.sharedMemPerMultiprocessor) \
  X(ManagedMemory, 83, is.managedMemory)                                 \
  X(ConcurrentManagedAccess, 89, is.concurrentManagedAccess)             \
  X(MaxSharedMemoryPerBlockOptin, 97, is.sharedMemPerBlockOptin)
#define OPSMITH_ATTRIBUTE(name, number, value) cudaDevAttr##name = number,
enum cudaDeviceAttr { OPSMITH_ATTRIBUTES(OPSMITH_ATTRIBUTE) };
#undef OPSMITH_ATTRIBUTE
enum cudaComputeMode { cudaComputeModeDefault, cudaComputeModeProhibited = 2 };
struct cudaDeviceProp {
  char name[256] = "the CPU, in place of a CUDA device";
  size_t totalGlobalMem = size_t{1} << 33;
  size_t sharedMemPerBlock = 48 << 10;
  size_t sharedMemPerBlockOptin = 99 << 10;
  size_t sharedMemPerMultiprocessor = 100 << 10;
  int regsPerBlock = 65536;
  int warpSize = emulated::warp_size;
  int maxThreadsPerBlock = 1024;
  int maxThreadsDim[3] = {1024, 1024, 64};
  int maxGridSize[3] = {2147483647, 65535, 65535};
  int major = 8, minor = 0;
  int multiProcessorCount = 4;
  int maxThreadsPerMultiProcessor = 2048;
  int l2CacheSize = 4 << 20;
  size_t totalConstMem = 65536;
  int clockRate = 1000000, memoryClockRate = 1000000, memoryBusWidth = 256;
  int integrated = 0, computeMode = cudaComputeModeDefault, concurrentKernels = 0;
  int asyncEngineCount = 1, canMapHostMemory = 1, unifiedAddressing = 1, managedMemory = 1;
  int concurrentManagedAccess = 0, cooperativeLaunch = 0, ECCEnabled = 0;
  int pciDomainID = 0, pciBusID = 0, pciDeviceID = 0;
};

// A failure ends the call with a message, but for what a whole program may look at.
inline cudaError_t cudaGetLastError() {
  return static_cast<cudaError_t>(emulated::last_error(true));
}
inline cudaError_t cudaPeekAtLastError() {
  return static_cast<cudaError_t>(emulated::last_error(false));
}
namespace emulated {
struct ErrorWords {
  const char* name = "unrecognized error code";
  const char* text = "unrecognized error code";
};
inline ErrorWords words_of(cudaError_t error) {
#define OPSMITH_ERROR(name, number, text) \
  if (error == number) return {"cuda" #name, text};
  OPSMITH_ERRORS(OPSMITH_ERROR)
#undef OPSMITH_ERROR
  return {};
}
}  // namespace emulated
inline const char* cudaGetErrorString(cudaError_t error) { return emulated::words_of(error).text; }
inline const char* cudaGetErrorName(cudaError_t error) { return emulated::words_of(error).name; }
inline cudaError_t cudaDeviceSynchronize(emulated::Place place = emulated::here()) {
  emulated::outside_graphs("a wait for the device", place);
  emulated::synchronise();
  return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t, emulated::Place place = emulated::here()) {
  return cudaDeviceSynchronize(place);
}

// Work is done before a call returns, so every event has happened, and takes no time.
inline constexpr unsigned cudaEventDefault = 0, cudaEventBlockingSync = 1,
                          cudaEventDisableTiming = 2;
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = nullptr;
  return cudaSuccess;
}
inline cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t = nullptr) { return cudaSuccess; }
inline cudaError_t cudaEventQuery(cudaEvent_t) { return cudaDeviceSynchronize(); }
inline cudaError_t cudaEventSynchronize(cudaEvent_t, emulated::Place place = emulated::here()) {
  return cudaDeviceSynchronize(place);
}
inline cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0) {
  return cudaSuccess;
}
inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 0;
  return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  const cudaDeviceProp is;
#define OPSMITH_ATTRIBUTE(name, number, is_) \
  if (attribute == number) *value = static_cast<int>(is_);
  OPSMITH_ATTRIBUTES(OPSMITH_ATTRIBUTE)
#undef OPSMITH_ATTRIBUTE
  return cudaSuccess;
}
namespace emulated {

template <typename Kernel>
const void* address_of(Kernel kernel) {
  if constexpr (std::is_pointer_v<Kernel>) {
    return reinterpret_cast<const void*>(kernel);
  } else {
    return nullptr;
  }
}

}  // namespace emulated

template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel kernel, cudaFuncAttribute attribute, int value) {
  using namespace emulated;
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  const bool allowed =
      value >= 0 && allow_shared_bytes(address_of(kernel), static_cast<uint64_t>(value));
  return allowed ? cudaSuccess : static_cast<cudaError_t>(set_error(cudaErrorInvalidValue));
}
template <typename Kernel>
cudaError_t cudaFuncSetCacheConfig(Kernel, cudaFuncCache) {
  return cudaSuccess;
}
template <typename Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel, int, size_t) {
  *blocks = 2;
  return cudaSuccess;
}
template <typename Kernel>
cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, Kernel, size_t = 0, int = 0) {
  *grid = 8;
  *block = 256;
  return cudaSuccess;
}

// The runtime moves the bytes: a copy of constant size would be inlined into the user's code, and
// watched as the host's own.
inline cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes,
                                   cudaStream_t stream = nullptr,
                                   emulated::Place place = emulated::here()) {
  emulated::check_stream(stream, "cudaMemsetAsync", place);
  emulated::host_fills(data, value, bytes, "cudaMemsetAsync", place);
  return cudaSuccess;
}
inline cudaError_t cudaMemset(void* data, int value, size_t bytes,
                              emulated::Place place = emulated::here()) {
  emulated::check_stream(nullptr, "cudaMemset", place);
  emulated::host_fills(data, value, bytes, "cudaMemset", place, true);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t stream = nullptr,
                                   emulated::Place place = emulated::here()) {
  emulated::check_stream(stream, "cudaMemcpyAsync", place);
  emulated::host_copies(to, from, bytes, "cudaMemcpyAsync", place, static_cast<emulated::Way>(kind),
                        false);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                              emulated::Place place = emulated::here()) {
  emulated::check_stream(nullptr, "cudaMemcpy", place);
  emulated::host_copies(to, from, bytes, "cudaMemcpy", place, static_cast<emulated::Way>(kind));
  return cudaSuccess;
}
namespace emulated {
template <typename Symbol>
char* symbol_at(const Symbol& symbol, size_t offset, size_t bytes, Place place) {
  if (offset > sizeof(Symbol) || bytes > sizeof(Symbol) - offset) {
    fail("the copy goes past the end of its symbol, which a GPU refuses", place);
  }
  return const_cast<char*>(reinterpret_cast<const volatile char*>(&symbol)) + offset;
}
}  // namespace emulated
template <typename Symbol>
cudaError_t cudaMemcpyToSymbolAsync(Symbol& symbol, const void* from, size_t bytes, size_t offset,
                                    cudaMemcpyKind, cudaStream_t stream,
                                    emulated::Place place = emulated::here()) {
  using namespace emulated;
  check_stream(stream, "cudaMemcpyToSymbolAsync", place);
  host_copies(symbol_at(symbol, offset, bytes, place), from, bytes, "cudaMemcpyToSymbolAsync",
              place);
  return cudaSuccess;
}
// Copies before the launches of a call, and from the host, are in order on any stream.
template <typename Symbol>
cudaError_t cudaMemcpyToSymbol(Symbol& symbol, const void* from, size_t bytes, size_t offset = 0,
                               cudaMemcpyKind = cudaMemcpyHostToDevice,
                               emulated::Place place = emulated::here()) {
  using namespace emulated;
  host_copies(symbol_at(symbol, offset, bytes, place), from, bytes, "cudaMemcpyToSymbol", place);
  return cudaSuccess;
}
template <typename Symbol>
cudaError_t cudaMemcpyFromSymbolAsync(void* to, const Symbol& symbol, size_t bytes, size_t offset,
                                      cudaMemcpyKind, cudaStream_t stream,
                                      emulated::Place place = emulated::here()) {
  using namespace emulated;
  check_stream(stream, "cudaMemcpyFromSymbolAsync", place);
  host_copies(to, symbol_at(symbol, offset, bytes, place), bytes, "cudaMemcpyFromSymbolAsync",
              place);
  return cudaSuccess;
}
template <typename Symbol>
cudaError_t cudaGetSymbolAddress(void** data, const Symbol& symbol) {
  *data = const_cast<char*>(reinterpret_cast<const volatile char*>(&symbol));
  return cudaSuccess;
}
namespace emulated {
inline cudaError_t copy_rows(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                             size_t width, size_t height, cudaStream_t stream, const char* what,
                             Place place) {
  check_stream(stream, what, place);
  for (size_t row = 0; row < height; ++row) {
    host_copies(static_cast<char*>(to) + row * to_pitch,
                static_cast<const char*>(from) + row * from_pitch, width, what, place);
  }
  return cudaSuccess;
}
}  // namespace emulated
inline cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                                     size_t width, size_t height, cudaMemcpyKind,
                                     cudaStream_t stream = nullptr,
                                     emulated::Place place = emulated::here()) {
  return emulated::copy_rows(to, to_pitch, from, from_pitch, width, height, stream,
                             "cudaMemcpy2DAsync", place);
}
inline cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                                size_t width, size_t height, cudaMemcpyKind,
                                emulated::Place place = emulated::here()) {
  return emulated::copy_rows(to, to_pitch, from, from_pitch, width, height, nullptr, "cudaMemcpy2D",
                             place);
}
namespace emulated {
template <typename T>
cudaError_t give(T** data, size_t bytes, const char* what, Place place, bool for_host = false) {
  constexpr size_t element = [] {
    if constexpr (std::is_void_v<T>)
      return 0;
    else
      return sizeof(T);
  }();
  *data = static_cast<T*>(allocate(bytes, element, what, place, for_host));
  if (*data != nullptr) return cudaSuccess;
  return static_cast<cudaError_t>(set_error(cudaErrorMemoryAllocation));
}
}  // namespace emulated
template <typename T>
cudaError_t cudaMalloc(T** data, size_t bytes, emulated::Place place = emulated::here()) {
  emulated::outside_graphs("cudaMalloc", place);
  return emulated::give(data, bytes, "cudaMalloc", place);
}
template <typename T>
cudaError_t cudaMallocAsync(T** data, size_t bytes, cudaStream_t,
                            emulated::Place place = emulated::here()) {
  return emulated::give(data, bytes, "cudaMallocAsync", place);
}
inline cudaError_t cudaFree(void* data, emulated::Place place = emulated::here()) {
  emulated::release(data, "cudaFree", place);
  return cudaSuccess;
}
inline cudaError_t cudaFreeAsync(void* data, cudaStream_t,
                                 emulated::Place place = emulated::here()) {
  return cudaFree(data, place);
}

namespace emulated {

// <<<grid, block, shared_bytes, stream>>>
class Configured {
 public:
  Configured(dim3 grid, dim3 block, uint64_t shared_bytes = 0, cudaStream_t stream = nullptr,
             Place place = here())
      : grid_(grid),
        block_(block),
        shared_bytes_(shared_bytes),
        default_stream_(stream == nullptr),
        place_(place) {}

  // Calls kernel(arguments...) in every CUDA thread. Each has copies of the arguments. `function`
  // is the kernel's address, or null where it is not known.
  template <typename Function, typename Kernel, typename... Arguments>
  void run(const char* name, Function function, Kernel kernel,
           const Arguments&... arguments) const {
    struct State {
      Kernel kernel;
      std::tuple<std::decay_t<const Arguments>...> arguments;
    };
    // What lies between the arguments is the same in every launch, so that these can be compared.
    alignas(State) unsigned char room[sizeof(State)] = {};
    __asm__ volatile("" : : "r"(room) : "memory");
    State& state = *new (room) State{kernel, {arguments...}};
    launch({grid_, block_, shared_bytes_, name, address_of(function), default_stream_, place_,
            [](void* opaque) {
              State& all = *static_cast<State*>(opaque);
              std::apply(all.kernel, all.arguments);
            },
            &state, sizeof state});
  }

 private:
  dim3 grid_, block_;
  uint64_t shared_bytes_;
  bool default_stream_;
  Place place_;
};

}  // namespace emulated
