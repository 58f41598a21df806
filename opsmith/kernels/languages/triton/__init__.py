"""Triton kernels: launching them, running them without a GPU, and compiling them to libraries.

Triton is imported when a kernel first needs it, not with opsmith.
"""

from opsmith.kernels.languages.triton.kernel import TritonKernel
from opsmith.kernels.languages.triton.missing import require_triton, triton_missing

__all__ = ["TritonKernel", "require_triton", "triton_missing"]
