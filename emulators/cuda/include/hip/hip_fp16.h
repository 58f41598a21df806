// In place of ROCm's header.
#include <cuda_fp16.h>
#include <hip/hip_runtime.h>
