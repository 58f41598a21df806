// In place of PyTorch's header, without the errors of NVIDIA's libraries.
#pragma once

#include <ATen/Context.h>
#include <c10/cuda/CUDAException.h>
#include <c10/util/Exception.h>

#define AT_CUDA_CHECK(expression) C10_CUDA_CHECK(expression)
