// In place of ROCm's header: HIP's names for what CUDA has under its own.
#pragma once

#include <emulated/cuda.h>

using hipError_t = cudaError_t;
using hipStream_t = cudaStream_t;
using hipDeviceProp_t = cudaDeviceProp;
inline constexpr auto hipSuccess = cudaSuccess;
inline constexpr auto hipMemcpyHostToDevice = cudaMemcpyHostToDevice;
inline constexpr auto hipMemcpyDeviceToHost = cudaMemcpyDeviceToHost;
inline constexpr auto hipMemcpyDeviceToDevice = cudaMemcpyDeviceToDevice;

// Macros, so that the place of a call is the user's line.
#define hipGetLastError cudaGetLastError
#define hipPeekAtLastError cudaPeekAtLastError
#define hipGetErrorString cudaGetErrorString
#define hipGetErrorName cudaGetErrorName
#define hipStreamSynchronize cudaStreamSynchronize
#define hipDeviceSynchronize cudaDeviceSynchronize
#define hipGetDevice cudaGetDevice
#define hipSetDevice cudaSetDevice
#define hipGetDeviceCount cudaGetDeviceCount
#define hipGetDeviceProperties cudaGetDeviceProperties
#define hipMemsetAsync cudaMemsetAsync
#define hipMemset cudaMemset
#define hipMemcpyAsync cudaMemcpyAsync
#define hipMemcpy cudaMemcpy
#define hipMalloc cudaMalloc
#define hipMallocAsync cudaMallocAsync
#define hipFree cudaFree
#define hipFreeAsync cudaFreeAsync

#define hipThreadIdx_x threadIdx.x
#define hipThreadIdx_y threadIdx.y
#define hipThreadIdx_z threadIdx.z
#define hipBlockIdx_x blockIdx.x
#define hipBlockIdx_y blockIdx.y
#define hipBlockIdx_z blockIdx.z
#define hipBlockDim_x blockDim.x
#define hipBlockDim_y blockDim.y
#define hipBlockDim_z blockDim.z
#define hipGridDim_x gridDim.x
#define hipGridDim_y gridDim.y
#define hipGridDim_z gridDim.z

#define HIP_KERNEL_NAME(...) __VA_ARGS__
#define HIP_DYNAMIC_SHARED(type, name) extern __shared__ type name[];
#define hipLaunchKernelGGL(kernel, grid, block, shared_bytes, stream, ...) \
  ::emulated::Configured(grid, block, shared_bytes, stream)                \
      .run(#kernel, nullptr, [&](auto... opsmith_arguments) {              \
        kernel(opsmith_arguments...);                                      \
      } __VA_OPT__(, ) __VA_ARGS__)

// HIP's functions for warps without a mask: those lanes take part that have not returned.
inline unsigned __lane_id() { return emulated::lane_number(); }
template <typename T>
T __shfl(T value, int source, int width = warpSize, opsmith_place place = emulated::here()) {
  return __shfl_sync(emulated::every_lane, value, source, width, place);
}
template <typename T>
T __shfl_down(T value, unsigned delta, int width = warpSize,
              opsmith_place place = emulated::here()) {
  return __shfl_down_sync(emulated::every_lane, value, delta, width, place);
}
template <typename T>
T __shfl_up(T value, unsigned delta, int width = warpSize, opsmith_place place = emulated::here()) {
  return __shfl_up_sync(emulated::every_lane, value, delta, width, place);
}
template <typename T>
T __shfl_xor(T value, int lane_mask, int width = warpSize, opsmith_place place = emulated::here()) {
  return __shfl_xor_sync(emulated::every_lane, value, lane_mask, width, place);
}
inline unsigned long long __ballot(int predicate, opsmith_place place = emulated::here()) {
  return __ballot_sync(emulated::every_lane, predicate, place);
}
inline int __any(int predicate, opsmith_place place = emulated::here()) {
  return __any_sync(emulated::every_lane, predicate, place);
}
inline int __all(int predicate, opsmith_place place = emulated::here()) {
  return __all_sync(emulated::every_lane, predicate, place);
}
