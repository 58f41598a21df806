"""Kernels in Triton: how a call launches one, how one runs without a GPU, how it becomes a library.

Triton is imported when a kernel is first needed, and not with opsmith.
"""

from opsmith.kernels.languages.triton.kernel import TritonKernel
from opsmith.kernels.languages.triton.missing import require_triton, triton_missing

__all__ = ["TritonKernel", "require_triton", "triton_missing"]
