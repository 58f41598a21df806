// In place of PyTorch's header, without CUDA_tensor_apply, which launches kernels of its own.
#pragma once

#include <ATen/ceil_div.h>
#include <ATen/cuda/ApplyGridUtils.cuh>
