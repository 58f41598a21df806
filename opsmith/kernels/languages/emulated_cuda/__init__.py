"""Compile CUDA kernels for the CPU, to check and to develop them without a GPU.

The package `emulators.cuda` reads and rewrites a source, and has the headers and the runtime. The
languages here compile a kernel with them, with its adapter.
"""

from emulators.cuda.compiling import INCLUDE
from opsmith.kernels.languages.emulated_cuda.language import (
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
    "INCLUDE",
    "USUAL_WARP",
    "CudaOnCpu",
    "device_library",
    "emulated",
    "emulated_behind_torch",
    "find_obstacle",
    "unit_for_nvcc",
]
