"""Compile CUDA kernels for the CPU, to check and to develop them without a GPU.

The package `emulators.cuda` reads and rewrites a source, and has the headers and the runtime. The
languages here compile a kernel with them, with its adapter.
"""

from emulators.cuda.obstacles import Obstacle
from opsmith.kernels.languages.emulated_cuda.exact_language import exact_emulated
from opsmith.kernels.languages.emulated_cuda.language import (
    CUDA_ON_CPU,
    INCLUDE,
    USUAL_WARP,
    CudaOnCpu,
    emulated,
    find_obstacle,
)
from opsmith.kernels.languages.emulated_cuda.torch_language import (
    device_library,
    emulated_behind_torch,
    unit_for_nvcc,
)

__all__ = [
    "CUDA_ON_CPU",
    "INCLUDE",
    "USUAL_WARP",
    "CudaOnCpu",
    "Obstacle",
    "device_library",
    "emulated",
    "emulated_behind_torch",
    "exact_emulated",
    "find_obstacle",
    "unit_for_nvcc",
]
