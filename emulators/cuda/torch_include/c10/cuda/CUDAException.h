// In place of PyTorch's header. A launch that CUDA refuses ends an emulated call at once.
#pragma once

#include <c10/cuda/CUDAMacros.h>
#include <c10/macros/Macros.h>
#include <c10/util/Exception.h>
#include <emulated/cuda.h>

namespace c10 {
class CUDAError : public c10::Error {
  using Error::Error;
};
}  // namespace c10

#define C10_CUDA_CHECK(expression)                                                                \
  do {                                                                                            \
    const cudaError_t opsmith_error = expression;                                                 \
    TORCH_CHECK(opsmith_error == cudaSuccess, "CUDA error: ", cudaGetErrorString(opsmith_error)); \
  } while (0)
#define C10_CUDA_CHECK_WARN(expression) C10_CUDA_CHECK(expression)
#define C10_CUDA_ERROR_HANDLED(expression) expression
#define C10_CUDA_IGNORE_ERROR(expression) static_cast<void>(expression)
#define C10_CUDA_CLEAR_ERROR() static_cast<void>(cudaGetLastError())
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
