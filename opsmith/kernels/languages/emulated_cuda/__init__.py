"""Compile CUDA kernels for the CPU, to check and to develop them without a GPU.

The package `emulators.cuda` rewrites a source to C++, and has the headers and the runtime that the
C++ needs. The languages here compile that C++ together with the kernel's adapter.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from dataclasses import replace
from pathlib import Path

import emulators.cuda
from emulators.cuda import compiling
from emulators.cuda.compiling import ALIASING, INCLUDE as INCLUDE, RUNTIME, common_flags
from emulators.cuda.obstacles import Obstacle, obstacle_of
from emulators.cuda.own_code import NoParserError, OwnCode, read_own_code
from emulators.cuda.rewriting import rewrite
from opsmith.errors import MissingDependencyError
from opsmith.kernels.languages.cpp import Cpp, argument_header, explainer, torch_adapter
from opsmith.kernels.languages.cuda import Cuda
from opsmith.kernels.languages.torch_library import TorchLibrary, is_module, library_name
from opsmith.kernels.source import KernelSource, Language
from opsmith.kernels.toolchain import compilers
from opsmith.kernels.toolchain.cmake import RELEASE, options_of
from opsmith.kernels.toolchain.compilers import find_toolset
from opsmith.kernels.toolchain.devices import DEVICES
from opsmith.kernels.toolchain.recipe import LinkedWith, Recipe
from opsmith.kernels.toolchain.units import Generated, Unit
from opsmith.system.files import source_text

EMULATION = Path(emulators.cuda.__file__).parent
#: The headers of opsmith are none of the user's.
_OPSMITH = Path(__file__).parents[3]
_BEGINS_WITH = "opsmith/detail/emulated.h"
#: Defines the number of threads in a warp, for a kernel and for the runtime.
_WARP = "-DOPSMITH_WARP="
USUAL_WARP = 32
#: Stand in for PyTorch's headers that need CUDA or Python.
TORCH_INCLUDE = EMULATION / "torch_include"
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


class Emulation(Language):
    """Do what every language of emulated CUDA does.

    Attributes:
        include: the folders of the headers in place of the toolkit's.
    """

    include: tuple[Path, ...] = (INCLUDE,)

    @abstractmethod
    def plain(self, source: KernelSource) -> tuple[Unit, tuple[str, ...]]:
        """Return the unit of a source as it is, and the headers to include first."""

    def own_code(self, source: KernelSource) -> OwnCode:
        """Return the user's lines of a source, behind the preprocessor.

        Raises:
            MissingDependencyError: there is no compiler, or no parser.
        """
        unit, headers = self.plain(source)
        tools = find_toolset(source.what)
        unit.write()
        compiler = (tools.compiler.path, *RELEASE, f"-I{unit.written}")
        command = (*compiler, *options_of(unit, tools))
        try:
            return read_own_code(command, Path(unit.source), headers, (_OPSMITH, unit.written))
        except NoParserError as error:
            raise MissingDependencyError(
                f"{source.what}: {error}. Get them: pip install 'opsmith[check]'"
            ) from error

    def rewritten(self, code: OwnCode) -> str:
        """Return the user's code as C++."""
        return rewrite(code)

    def obstacle(self, source: KernelSource) -> Obstacle | None:
        """Return the first feature of a source that is not emulated.

        Raises:
            MissingDependencyError: there is no compiler, or no parser.
        """
        behind_torch = not self.has_entry
        return obstacle_of(self.own_code(source), behind_torch=behind_torch, warp=_warp_of(source))

    def require(self, source: KernelSource, *, torch: bool = True) -> None:
        """Require a C++ compiler, a parser, and a source that the emulator supports."""
        del torch
        obstacle = self.obstacle(source)
        if obstacle is not None:
            raise MissingDependencyError(
                f"{source.what}: opsmith does not emulate this kernel: {obstacle}"
            )

    def unit(self, source: KernelSource) -> Unit:
        """Return the unit of the rewritten source.

        Raises:
            MissingDependencyError: there is no compiler, or no parser.
            UnreadableError: the message names the line.
        """
        plain, headers = self.plain(source)
        name = f"{source.path.stem}_{source.device}.cpp"
        before = "".join(f"#include <{header}>\n" for header in headers)
        text = f"{before}{self.rewritten(self.own_code(source))}"
        generated = Generated.of({name: text}).beside(plain.generated)
        return replace(plain, source=name, generated=generated)

    def runtime(self, flags: tuple[str, ...] = ()) -> Path:
        """Build the library that all emulated kernels share, and return its path.

        Args:
            flags: those of a source, which may choose the size of a warp.
        """
        return Recipe(
            "opsmith_cuda_on_cpu",
            generated={"emulation.cpp": compiling.runtime_source()},
            include_dirs=[INCLUDE, RUNTIME],
            # Backtraces need line numbers (-g1); more debug information would compile 25 % slower.
            flags=("-O2", "-g1", *filter(_is_warp, flags)),
            torch="none",
            what="the emulation of CUDA",
        ).build()

    def beside(self, source: KernelSource) -> LinkedWith:
        """Return the options that link an adapter with the emulator's runtime."""
        links = linked_with(self.runtime(source.flags))
        return {
            "include_dirs": self.include,
            "defines": DEVICES["cpu"].compile_definitions if self.has_entry else (),
            "link_libraries": (*source.link_libraries, *links),
        }


class KernelOnCpu(Emulation, Cpp):
    """Do what every language of emulated kernels against ``<opsmith/kernel.h>`` does.

    Attributes:
        library_suffix: the end of its libraries' names.
    """

    library_suffix: str

    def library(self, source: KernelSource) -> Recipe:
        """Return the recipe of a library that registers the kernel for tensors on the CPU."""
        signature = source.signature
        return Recipe(
            f"{signature.namespace}__{signature.name}__{self.library_suffix}",
            generated=torch_adapter(source, "cpu"),
            objects=[self.unit(source)],
            what=f"{signature.qualname} ({source.device}, on the CPU)",
            **self.beside(source),
        )


class CudaOnCpu(KernelOnCpu, Cuda):
    """The language CUDA, emulated on the CPU."""

    name = "CUDA on the CPU"
    library_suffix = "cuda_on_cpu"
    emulates = ""

    def __init__(self, *, watched: bool) -> None:
        self._watched = watched

    def plain(self, source: KernelSource) -> tuple[Unit, tuple[str, ...]]:
        """Return the unit of the source as it is, and the header to include first."""
        unit = Unit(
            name=f"{source.signature.namespace}__{source.signature.name}",
            source=source.path,
            generated=argument_header(source),
            include_dirs=(INCLUDE, *source.include_dirs),
            defines=DEVICES["cpu"].compile_definitions,
            flags=(
                compiling.ALIASING,
                "-O1" if self._watched else "-O2",
                *flags_for_lines(source.what),
                *compiling.common_flags(source.flags),
                *(watching_flags(source) if self._watched else ()),
            ),
            explain=explainer(source),
        )
        return unit, (_BEGINS_WITH,)


def flags_for_lines(what: str) -> tuple[str, ...]:
    """Return the flags that add line numbers to an object; `what` is its title, for messages."""
    return compiling.line_flags(gcc=compilers.find_compiler(what).is_gcc)


def watching_flags(source: KernelSource) -> tuple[str, ...]:
    """Return the flags that have the code of a source report its accesses to the runtime."""
    return compiling.watching_flags(compilers.find_compiler(source.what).version)


def linked_with(library: Path) -> tuple[str, ...]:
    """Return what a kernel's library is linked with: the runtime, and the linker's options."""
    options = (*compiling.APART, f"-rpath,{library.parent}")
    return (str(library), *(f"-Wl,{option}" for option in options))


CUDA_ON_CPU = CudaOnCpu(watched=False)
_WATCHED_ON_CPU = CudaOnCpu(watched=True)


def _is_warp(flag: str) -> bool:
    return flag.startswith(_WARP)


def _warp_of(source: KernelSource) -> int:
    chosen = [int(flag.removeprefix(_WARP)) for flag in filter(_is_warp, source.flags)]
    return chosen[-1] if chosen else USUAL_WARP


def emulated(source: KernelSource, *, watched: bool = False, warp: int = 32) -> KernelSource:
    """Return a CUDA source as a source to compile for the CPU.

    Args:
        watched: whether the code reports every access to the runtime, as checks need.
        warp: number of threads in a warp: 32, or 64 as on AMD's Instinct GPUs.
    """
    flags = source.flags if warp == USUAL_WARP else (*source.flags, f"{_WARP}{warp}")
    return replace(source, language=_WATCHED_ON_CPU if watched else CUDA_ON_CPU, flags=flags)


def find_obstacle(source: KernelSource) -> Obstacle | None:
    """Return the first feature of an emulated source that is not emulated; see `Emulation`."""
    assert isinstance(source.language, Emulation)
    return source.language.obstacle(source)


class BehindTorch(Emulation, TorchLibrary):
    """Do what every language of emulated sources with ``api="torch"`` does.

    Attributes:
        device_key: the dispatch key for which the sources register their kernels.
    """

    device_key: str

    def unit(self, source: KernelSource) -> Unit:
        """Return the unit of the rewritten source."""
        unit = super().unit(source)
        whole = any(map(_WHOLE.search, unit.generated.render().values()))
        defines = (*unit.defines, f"OPSMITH_DISPATCH_KEY={self.device_key}")
        return replace(
            unit, defines=(*defines, "OPSMITH_WHOLE_TORCH") if whole else defines, full_torch=True
        )

    def device_library(
        self, name: str, sources: tuple[Path, ...] = (), include_dirs: tuple[Path, ...] = ()
    ) -> Path:
        """Build a library with PyTorch's device of this language on the CPU, and return its path.

        Args:
            name: an identifier.
            sources: further sources, which call operators on that device; see ``torch/device.h``.
            include_dirs: their include folders.

        Raises:
            BuildError: the library does not compile.
            MissingDependencyError: a program or library that building needs is missing.
        """
        what = f"PyTorch's device {self.device_key}, emulated"
        return Recipe(
            f"{name}_{self.device_key.lower()}",
            [_DEVICE / "device.cpp", *sources],
            include_dirs=[INCLUDE, RUNTIME, _DEVICE, *include_dirs],
            defines=(f"EMULATED_DEVICE={self.device_key}",),
            flags=("-O1", *flags_for_lines(what)),
            link_libraries=linked_with(self.runtime()),
            torch="full",
            what=what,
        ).build()


class _TorchCudaOnCpu(BehindTorch):
    """The language of CUDA sources with ``api="torch"``, emulated on the CPU."""

    name = "CUDA that registers itself, on the CPU"
    device_key = "CUDA"

    def plain(self, source: KernelSource) -> tuple[Unit, tuple[str, ...]]:
        """Return the unit of the source as it is, and the headers to include first."""
        unit = Unit(
            name=f"{library_name(source)}_on_cpu",
            source=source.path,
            generated=Generated.of(None),
            include_dirs=(TORCH_INCLUDE, INCLUDE, *source.include_dirs),
            defines=_AS_PYTORCH,
            flags=(
                *(ALIASING, "-O1", "-w"),
                *flags_for_lines(source.what),
                *common_flags(source.flags),
                *watching_flags(source),
            ),
            full_torch=True,
        )
        return unit, (_BEFORE, registration_header(source))


_TORCH_CUDA_ON_CPU = _TorchCudaOnCpu()


def registration_header(source: KernelSource) -> str:
    """Return the header to include before a source with ``api="torch"``."""
    return _MODULES if is_module(source) else _BLOCKS


def emulated_behind_torch(source: KernelSource) -> KernelSource:
    """Return a CUDA source with ``api="torch"`` as a source to compile for the CPU.

    Its code reports every access to the runtime; `BehindTorch.device_library` calls it.
    """
    return replace(source, language=_TORCH_CUDA_ON_CPU)


def unit_for_nvcc(source: KernelSource) -> Unit:
    """Return how nvcc compiles a source with ``api="torch"``, beside a PyTorch without CUDA."""
    before = f"#include <{registration_header(source)}>\n"
    whole = ("OPSMITH_WHOLE_TORCH",) if _WHOLE.search(source_text(source.path)) else ()
    return Unit(
        name=f"{library_name(source)}_by_nvcc",
        source=source.path.resolve(),
        generated=Generated.of({"emulated/cuda.h": _REAL_CUDA, "before.h": before}),
        include_dirs=(TORCH_INCLUDE, *source.include_dirs),
        defines=("OPSMITH_DISPATCH_KEY=CUDA", *whole),
        flags=("-include", "before.h", *source.flags),
        full_torch=True,
    )
