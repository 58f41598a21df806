"""Compile Ascend C kernels for the CPU, to check and to develop them without an NPU.

The package `emulators.ascendc` has the headers and the runtime; launches become calls.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from emulators.ascendc import compiling
from emulators.cuda.own_code import UnreadableError
from emulators.cuda.rewriting import rewrite_launches
from opsmith.errors import MissingDependencyError
from opsmith.kernels.languages.cpp import Cpp, argument_header, explainer, torch_adapter
from opsmith.kernels.languages.emulated_cuda import Emulation, flags_for_lines, linked_with
from opsmith.kernels.toolchain import compilers
from opsmith.kernels.toolchain.devices import DEVICES
from opsmith.kernels.toolchain.recipe import LinkedWith, Recipe
from opsmith.kernels.toolchain.units import Unit

if TYPE_CHECKING:
    from emulators.cuda.own_code import OwnCode
    from opsmith.kernels.source import KernelSource

_BEGINS_WITH = ("opsmith/ascendc.h",)


class AscendCOnCpu(Emulation, Cpp):
    """The language Ascend C, emulated on the CPU."""

    name = "Ascend C on the CPU"

    def plain(self, source: KernelSource) -> tuple[Unit, tuple[str, ...]]:
        """Return the unit of the source as it is, and the header to include first."""
        unit = Unit(
            name=f"{source.signature.namespace}__{source.signature.name}",
            source=source.path,
            generated=argument_header(source),
            include_dirs=(*compiling.INCLUDE, *source.include_dirs),
            defines=DEVICES["cpu"].compile_definitions,
            flags=(
                *compiling.FLAGS,
                *flags_for_lines(source.what),
                *compiling.common_flags(source.flags),
            ),
            explain=explainer(source),
        )
        return unit, _BEGINS_WITH

    def require(self, source: KernelSource, *, torch: bool = True) -> None:
        """Require a C++ compiler, and a source whose launches the parser reads."""
        del torch
        compilers.find_compiler(source.what)
        try:
            self.rewritten(self.own_code(source))
        except UnreadableError as error:
            raise MissingDependencyError(
                f"{source.what}: opsmith does not emulate this kernel: it has {error}, at "
                f"{error.path.name}:{error.line}"
            ) from None

    def rewritten(self, code: OwnCode) -> str:
        """Return the source with its launches as calls."""
        return rewrite_launches(code)

    def beside(self, source: KernelSource) -> LinkedWith:
        """Return the options that link an adapter with the emulator's runtime."""
        library = Recipe(
            "opsmith_ascendc_on_cpu",
            generated={"emulation.cpp": compiling.runtime_source()},
            include_dirs=[*compiling.INCLUDE, *compiling.RUNTIME],
            flags=("-O2", "-g1"),
            torch="none",
            what="the emulation of Ascend C",
        ).build()
        return {
            "include_dirs": compiling.INCLUDE,
            "defines": DEVICES["cpu"].compile_definitions,
            "link_libraries": (*source.link_libraries, *linked_with(library)),
        }

    def library(self, source: KernelSource) -> Recipe:
        """Return the recipe of a library that registers the kernel for tensors on the CPU."""
        signature = source.signature
        return Recipe(
            f"{signature.namespace}__{signature.name}__ascendc_on_cpu",
            generated=torch_adapter(source, "cpu"),
            objects=[self.unit(source)],
            what=f"{signature.qualname} (npu, on the CPU)",
            **self.beside(source),
        )


def emulated(source: KernelSource) -> KernelSource:
    """Return a source of Ascend C as a source to compile for the CPU."""
    return replace(source, language=AscendCOnCpu())
