// The further functions of CUDA's runtime that whole programs call.
#pragma once

#include <emulated/host.h>
#include <emulated/program.h>

// NVIDIA's samples ask by these whether the runtime's header is included.
#define __CUDA_RUNTIME_H__
#define __DRIVER_TYPES_H__

enum : unsigned { cudaHostAllocDefault, cudaHostAllocPortable, cudaHostAllocMapped };
enum : unsigned { cudaStreamDefault, cudaStreamNonBlocking };
enum : unsigned { cudaMemAttachGlobal = 1, cudaMemAttachHost, cudaDeviceMapHost = 8 };

// Memory of both the host and the device.
#define OPSMITH_OF_BOTH(name)                                  \
  template <typename T>                                        \
  cudaError_t name(T** data, size_t bytes, unsigned = 0,       \
                   emulated::Place place = emulated::here()) { \
    return emulated::give(data, bytes, #name, place, true);    \
  }
OPSMITH_OF_BOTH(cudaMallocManaged)
OPSMITH_OF_BOTH(cudaMallocHost)
OPSMITH_OF_BOTH(cudaHostAlloc)
#undef OPSMITH_OF_BOTH
inline cudaError_t cudaFreeHost(void* data, emulated::Place place = emulated::here()) {
  emulated::release(data, "cudaFreeHost", place);
  return cudaSuccess;
}
template <typename T>
cudaError_t cudaHostGetDevicePointer(T** device, void* host, unsigned) {
  *device = static_cast<T*>(host);
  return cudaSuccess;
}
template <typename T>
cudaError_t cudaMallocPitch(T** data, size_t* pitch, size_t width, size_t height,
                            emulated::Place place = emulated::here()) {
  *pitch = (width + 511) / 512 * 512;
  return emulated::give(data, *pitch * height, "cudaMallocPitch", place);
}
inline cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = cudaDeviceProp().totalGlobalMem;
  return cudaSuccess;
}
inline cudaError_t cudaMemPrefetchAsync(const void*, size_t, int, cudaStream_t = nullptr) {
  return cudaSuccess;
}

// Every stream runs its work at once.
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = reinterpret_cast<cudaStream_t>(new char);
  return cudaSuccess;
}
inline cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete reinterpret_cast<char*>(stream);
  return cudaSuccess;
}
inline cudaError_t cudaStreamQuery(cudaStream_t) { return cudaDeviceSynchronize(); }
inline cudaError_t cudaThreadSynchronize() { return cudaDeviceSynchronize(); }
inline cudaError_t cudaDeviceReset() { return cudaDeviceSynchronize(); }
inline cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
inline cudaError_t cudaProfilerStart() { return cudaSuccess; }
inline cudaError_t cudaProfilerStop() { return cudaSuccess; }
inline cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
inline cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }
template <typename Symbol>
cudaError_t cudaMemcpyFromSymbol(void* to, const Symbol& symbol, size_t bytes, size_t offset = 0,
                                 cudaMemcpyKind = cudaMemcpyDeviceToHost,
                                 emulated::Place place = emulated::here()) {
  emulated::host_copies(to, emulated::symbol_at(symbol, offset, bytes, place), bytes,
                        "cudaMemcpyFromSymbol", place);
  return cudaSuccess;
}
