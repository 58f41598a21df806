"""Compile CUDA kernels for the CPU, to check and to develop them without a GPU.

The package `emulators.cuda` rewrites a source to C++, and has the headers and the runtime that the
C++ needs. The languages here compile that C++ together with the kernel's adapter.
"""

from emulators.cuda.compiling import INCLUDE
from opsmith.kernels.languages.emulated_cuda.language import (
    USUAL_WARP,
    CudaOnCpu,
    device_library,
    emulated,
    emulated_behind_torch,
    find_obstacle,
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
