// In place of ROCm's header.
#pragma once

#include <cuda_bf16.h>
#include <hip/hip_runtime.h>

using __hip_bfloat16 = __nv_bfloat16;
using __hip_bfloat162 = __nv_bfloat162;
