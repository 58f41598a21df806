// In place of PyTorch's header, which needs what CMake writes into a build with CUDA.
#pragma once

#define C10_CUDA_NO_CMAKE_CONFIGURE_FILE
#define C10_CUDA_EXPORT __attribute__((__visibility__("default")))
#define C10_CUDA_IMPORT C10_CUDA_EXPORT
#define C10_CUDA_API C10_CUDA_IMPORT
#define C10_COMPILE_TIME_MAX_GPUS 120
