"""Compile CUDA kernels for the CPU, to check and to develop them without a GPU.

A ``.cu`` source passes through the preprocessor and a parser (``own_code.py``), is rewritten to C++
by a few edits (``rewriting.py``), is compiled with opsmith's
headers in place of the CUDA toolkit's (``include/``), and runs on a scheduler of fibers
(``runtime/``), a library that all kernels share.
"""

from opsmith.kernels.cuda_emulator.exact_language import exact_emulated
from opsmith.kernels.cuda_emulator.language import (
    CUDA_ON_CPU,
    USUAL_WARP,
    CudaOnCpu,
    emulated,
    find_obstacle,
)
from opsmith.kernels.cuda_emulator.obstacles import Obstacle
from opsmith.kernels.cuda_emulator.torch_language import (
    device_library,
    emulated_behind_torch,
    unit_for_nvcc,
)

__all__ = [
    "CUDA_ON_CPU",
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
