"""CUDA against ``<opsmith/kernel.h>``, compiled by nvcc."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from opsmith.errors import MissingError
from opsmith.kernels import nvcc, toolchain
from opsmith.kernels.languages.cpp import Cpp
from opsmith.kernels.torch_paths import torch_paths

if TYPE_CHECKING:
    from opsmith.kernels.library import KernelSource


class Cuda(Cpp):
    """See `Language`."""

    name = "CUDA"
    suffixes = (".cu",)
    compilers = MappingProxyType({"nvcc": nvcc.usable_nvcc})
    emulates = "cuda"

    def emulated(self, source: KernelSource) -> KernelSource:
        """See `Language.emulated`."""
        from opsmith.kernels.languages.cuda_on_cpu import emulated

        return emulated(source)

    def require(self, source: KernelSource, *, torch: bool = True) -> None:
        """See `Language.require`."""
        require_cuda(source, torch=torch)


def require_cuda(source: KernelSource, *, torch: bool) -> None:
    """Ask for nvcc, for a host compiler that it takes, and for a PyTorch that has CUDA.

    Raises:
        MissingError: one of them is not there.
    """
    toolchain.find_compiler(source.what)
    paths = torch_paths()
    if torch and paths is not None and not paths.has_cuda:
        raise MissingError(
            f"{source.what}: {source.path} is CUDA, and this PyTorch ({paths.version}) has no "
            "CUDA. Install one that has (https://pytorch.org/get-started/locally)."
        )
    (nvcc.find_nvcc if nvcc.ANY_HOST in source.flags else nvcc.usable_nvcc)(source.what)
