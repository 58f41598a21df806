"""The language of CUDA sources behind PyTorch's host code that are compiled for the CPU."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from emulators.cuda.compiling import ALIASING, INCLUDE, RUNTIME, common_flags
from opsmith.kernels.languages.emulated_cuda.language import (
    EMULATION,
    Emulation,
    flags_for_lines,
    linked_with,
    runtime,
    watching_flags,
)
from opsmith.kernels.languages.torch_library import TorchLibrary, is_module, library_name
from opsmith.kernels.toolchain.recipe import LinkedWith, Recipe
from opsmith.kernels.toolchain.units import Generated, Unit
from opsmith.system.files import source_text

if TYPE_CHECKING:
    from opsmith.kernels.source import KernelSource

#: Stand in for PyTorch's headers that need CUDA or Python.
_TORCH_INCLUDE = EMULATION / "torch_include"
_DEVICE = EMULATION / "torch"
_BLOCKS = "opsmith/detail/torch/library.h"
_MODULES = "opsmith/detail/torch/module.h"
_BEFORE = "emulated/cuda.h"
#: Matches a name that is in the part of <torch/all.h> which ``torch_include/`` leaves out.
_WHOLE = re.compile(
    r"\btorch::(?:cuda|data|fft|jit|linalg|load|nested|nn|optim|save|serialize|sparse|special)\b"
)
#: What the headers in ``torch_include/`` take from the emulator, for nvcc.
_REAL_CUDA = """#pragma once
#include <cuda_runtime.h>
namespace emulated { inline constexpr int warp_size = 32; }
"""
#: PyTorch has nvcc compile extensions with these.
_AS_PYTORCH = ("__CUDA_NO_HALF_OPERATORS__", "__CUDA_NO_HALF2_OPERATORS__")


class TorchCudaOnCpu(Emulation, TorchLibrary):
    """The language of CUDA sources with ``api="torch"``, emulated on the CPU."""

    name = "CUDA that registers itself, on the CPU"

    def plain(self, source: KernelSource) -> tuple[Unit, tuple[str, ...]]:
        """Return the unit of the source as it is, and the headers to include first."""
        unit = Unit(
            name=f"{library_name(source)}_on_cpu",
            source=source.path,
            generated=Generated.of(None),
            include_dirs=(_TORCH_INCLUDE, INCLUDE, *source.include_dirs),
            defines=("OPSMITH_DISPATCH_KEY=CUDA", *_AS_PYTORCH),
            flags=(
                *(ALIASING, "-O1", "-w"),
                *flags_for_lines(source.what),
                *common_flags(source.flags),
                *watching_flags(source),
            ),
            full_torch=True,
        )
        return unit, (_BEFORE, _MODULES if is_module(source) else _BLOCKS)

    def unit(self, source: KernelSource) -> Unit:
        """Return the unit of the rewritten source."""
        unit = super().unit(source)
        whole = any(map(_WHOLE.search, unit.generated.render().values()))
        return replace(unit, defines=(*unit.defines, "OPSMITH_WHOLE_TORCH")) if whole else unit

    def beside(self, source: KernelSource) -> LinkedWith:
        """Return the options that link an adapter with the emulator's runtime."""
        library = runtime(())
        return {
            "include_dirs": (INCLUDE,),
            "defines": (),
            "link_libraries": (*source.link_libraries, *linked_with(library)),
        }


_TORCH_CUDA_ON_CPU = TorchCudaOnCpu()


def emulated_behind_torch(source: KernelSource) -> KernelSource:
    """Return a CUDA source with ``api="torch"`` as a source to compile for the CPU.

    Its code reports every access to the runtime, and can be called by `device_library` only.
    """
    return replace(source, language=_TORCH_CUDA_ON_CPU)


def unit_for_nvcc(source: KernelSource) -> Unit:
    """Return how nvcc compiles a source with ``api="torch"``, beside a PyTorch without CUDA."""
    before = f"#include <{_MODULES if is_module(source) else _BLOCKS}>\n"
    whole = ("OPSMITH_WHOLE_TORCH",) if _WHOLE.search(source_text(source.path)) else ()
    return Unit(
        name=f"{library_name(source)}_by_nvcc",
        source=source.path.resolve(),
        generated=Generated.of({"emulated/cuda.h": _REAL_CUDA, "before.h": before}),
        include_dirs=(_TORCH_INCLUDE, *source.include_dirs),
        defines=("OPSMITH_DISPATCH_KEY=CUDA", *whole),
        flags=("-include", "before.h", *source.flags),
        full_torch=True,
    )


def device_library(name: str, sources: tuple[Path, ...], include_dirs: tuple[Path, ...]) -> Path:
    """Build a library with PyTorch's device "cuda" on the CPU, and return its path.

    Args:
        name: an identifier.
        sources: further sources, which call operators on that device; see ``torch/device.h``.
        include_dirs: their include folders.

    Raises:
        BuildError: the library does not compile.
        MissingDependencyError: a program or library that building needs is missing.
    """
    library = runtime(())
    what = "PyTorch's CUDA device, emulated"
    return Recipe(
        name,
        [_DEVICE / "device.cpp", *sources],
        include_dirs=[INCLUDE, RUNTIME, _DEVICE, *include_dirs],
        flags=("-O1", *flags_for_lines(what)),
        link_libraries=linked_with(library),
        torch="full",
        what=what,
    ).build()
