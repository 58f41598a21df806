"""CUDA against ``<opsmith/kernel.h>``, compiled by nvcc."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from opsmith.kernels.languages.cpp import Cpp
from opsmith.kernels.toolchain import compilers, nvcc, ptxas
from opsmith.kernels.toolchain.toolset import TARGET_VERSION
from opsmith.kernels.toolchain.torch_paths import require_torch_for, torch_paths
from opsmith.kernels.toolchain.units import CMakeLanguage, Unit

if TYPE_CHECKING:
    from opsmith.kernels.source import KernelSource


class Cuda(Cpp):
    """The language CUDA.

    Args:
        emulated: returns a source to compile for the CPU; `None` without an emulator of CUDA.
    """

    name = "CUDA"
    suffixes = (".cu",)
    compilers = MappingProxyType({"nvcc": nvcc.usable_nvcc})
    emulates = "cuda"

    def __init__(self, emulated: Callable[[KernelSource], KernelSource] | None = None) -> None:
        self._emulated = emulated

    def emulated(self, source: KernelSource) -> KernelSource | None:
        """Return the source to compile for the CPU, if an emulator of CUDA is known."""
        return None if self._emulated is None else self._emulated(source)

    def require(self, source: KernelSource, *, torch: bool = True) -> None:
        """Require nvcc, a host compiler that it supports, and a PyTorch with CUDA."""
        require_cuda(source, torch=torch)

    def unit(self, source: KernelSource) -> Unit:
        """Return the unit of a source, compiled by nvcc."""
        return replace(super().unit(source), language=compiled_by_nvcc(source))


def resources(source: KernelSource, unit: Unit | None = None) -> list[ptxas.Resources]:
    """Compile a source for the requested architectures, and return the resources of its kernels.

    Args:
        source: the source.
        unit: how it is compiled, if not as a kernel against ``<opsmith/kernel.h>``.

    Raises:
        BuildError: nvcc refuses the source.
        MissingDependencyError: there is no nvcc.
    """
    compiler = ptxas.find(source.what)
    unit = unit or Cpp().unit(source)
    unit.write()
    paths = torch_paths()
    folders = () if paths is None else paths.include if unit.full_torch else paths.include[:1]
    system = [str(folder) for folder in folders]
    options = [
        *("-std=c++20", "--expt-relaxed-constexpr"),
        *(f"-I{folder}" for folder in unit.include),
        *(word for folder in system for word in ("-isystem", folder)),
        *(() if unit.full_torch else (f"-DTORCH_TARGET_VERSION={TARGET_VERSION}",)),
        *(f"-D{define}" for define in unit.defines),
        *unit.flags,
    ]
    found = []
    for architecture in ptxas.architectures():
        found += ptxas.resources(compiler, unit.path, options, architecture, source.what)
    names = ptxas.demangled([one.kernel for one in found])
    return [replace(one, kernel=names[one.kernel]) for one in found]


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
