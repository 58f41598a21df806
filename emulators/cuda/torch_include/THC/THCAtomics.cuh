// In place of a header of earlier releases of PyTorch.
#pragma once

#include <ATen/cuda/Atomic.cuh>
