"""CUDA kernels compiled for the CPU: to prove them, and to develop them, where no GPU is.

A ``.cu`` source becomes C++ by a small rewriting (``rewriting.py``), is compiled against headers of
opsmith's own in place of the CUDA toolkit's (``include/``), and runs on a scheduler of fibers
(``runtime/``), a library that all kernels share.
"""

from opsmith.kernels.cuda_emulator.language import CUDA_ON_CPU, CudaOnCpu, emulated
from opsmith.kernels.cuda_emulator.obstacles import Obstacle, find_obstacle

__all__ = ["CUDA_ON_CPU", "CudaOnCpu", "Obstacle", "emulated", "find_obstacle"]
