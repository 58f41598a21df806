"""CUDA against ``<opsmith/kernel.h>``, compiled by nvcc."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from opsmith.kernels.languages.cpp import Cpp
from opsmith.kernels.source import KernelSource
from opsmith.kernels.toolchain import compilers, nvcc
from opsmith.kernels.toolchain.torch_paths import require_torch_for
from opsmith.kernels.toolchain.units import CMakeLanguage, Unit


class Cuda(Cpp):
    """The language CUDA."""

    name = "CUDA"
    suffixes = (".cu",)
    compilers = MappingProxyType({"nvcc": nvcc.usable_nvcc})
    emulates = "cuda"

    def require(self, source: KernelSource, *, torch: bool = True) -> None:
        """Require nvcc, a host compiler that it supports, and a PyTorch with CUDA."""
        require_cuda(source, torch=torch)

    def unit(self, source: KernelSource) -> Unit:
        """Return the unit of a source, compiled by nvcc."""
        return replace(super().unit(source), language=compiled_by_nvcc(source))


LANGUAGE = Cuda()


def compiled_by_nvcc(source: KernelSource) -> CMakeLanguage:
    """Return how CMake compiles a source of CUDA.

    Raises:
        MissingDependencyError: there is no nvcc.
    """
    return CMakeLanguage(
        name="CUDA",
        compiler=nvcc.find_nvcc(source.what),
        architectures=nvcc.cuda_architectures(),
        options=("--expt-relaxed-constexpr",),
        torch_libraries=source.device_row.torch_libraries,
    )


def require_cuda(source: KernelSource, *, torch: bool) -> None:
    """Require nvcc, a host compiler that it supports, and a PyTorch with CUDA.

    Raises:
        MissingDependencyError: one of them is missing.
    """
    compilers.find_compiler(source.what)
    if torch:
        require_torch_for(source.device_row, source.what, f"{source.path} is CUDA")
    (nvcc.find_nvcc if nvcc.ANY_HOST in source.flags else nvcc.usable_nvcc)(source.what)
