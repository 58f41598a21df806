"""Compile Ascend C kernels for the CPU, to check and to develop them without an NPU.

The package `emulators.ascendc` has the headers and the runtime; launches become calls.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from emulators.ascendc import compiling
from emulators.cuda.own_code import UnreadableError
from emulators.cuda.rewriting import rewrite_launches
from opsmith.compat.torch_dispatch import is_added, is_defined
from opsmith.compat.torch_library import destroy
from opsmith.errors import MissingDependencyError
from opsmith.kernels.languages.cpp import argument_header, explainer
from opsmith.kernels.languages.emulated_cuda import (
    TORCH_INCLUDE,
    BehindTorch,
    Emulation,
    KernelOnCpu,
    flags_for_lines,
    registration_header,
)
from opsmith.kernels.languages.torch_library import SelfRegistering, library_name
from opsmith.kernels.toolchain import compilers
from opsmith.kernels.toolchain.devices import DEVICES
from opsmith.kernels.toolchain.recipe import Recipe
from opsmith.kernels.toolchain.units import Generated, Unit
from opsmith.system.files import source_text

if TYPE_CHECKING:
    from emulators.cuda.own_code import OwnCode
    from opsmith.kernels.libraries.loaded_library import Library
    from opsmith.kernels.source import KernelSource
    from opsmith.untyped import Value

INCLUDE = compiling.INCLUDE
_BEGINS_WITH = ("opsmith/ascendc.h",)
_LAUNCH_HEADER = re.compile(r"\baclrtlaunch_\w+\.h\b")


class _OnCpu(Emulation):
    """Do what both languages here do."""

    def rewritten(self, code: OwnCode) -> str:
        """Return the source with its launches as calls."""
        return rewrite_launches(code)

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

    def runtime(self, flags: tuple[str, ...] = ()) -> Path:
        """Build the library that all emulated kernels share, and return its path."""
        del flags
        return Recipe(
            "opsmith_ascendc_on_cpu",
            generated={"emulation.cpp": compiling.runtime_source()},
            include_dirs=[*INCLUDE, *compiling.RUNTIME],
            flags=("-O2", "-g1"),
            torch="none",
            what="the emulation of Ascend C",
        ).build()


def _launch_headers(source: KernelSource) -> Generated:
    """Return the headers that a project's build writes for `ACLRT_LAUNCH_KERNEL`, with nothing."""
    return Generated.of(dict.fromkeys(_LAUNCH_HEADER.findall(source_text(source.path)), ""))


def _flags(source: KernelSource) -> tuple[str, ...]:
    lines = flags_for_lines(source.what)
    return (*compiling.FLAGS, *lines, *compiling.common_flags(source.flags))


class AscendCOnCpu(_OnCpu, KernelOnCpu):
    """The language Ascend C, emulated on the CPU."""

    name = "Ascend C on the CPU"
    library_suffix = "ascendc_on_cpu"
    include = INCLUDE

    def plain(self, source: KernelSource) -> tuple[Unit, tuple[str, ...]]:
        """Return the unit of the source as it is, and the header to include first."""
        unit = Unit(
            name=f"{source.signature.namespace}__{source.signature.name}",
            source=source.path,
            generated=argument_header(source).beside(_launch_headers(source)),
            include_dirs=(*INCLUDE, *source.include_dirs),
            defines=DEVICES["cpu"].compile_definitions,
            flags=_flags(source),
            explain=explainer(source),
        )
        return unit, _BEGINS_WITH


class _TorchAscendCOnCpu(_OnCpu, BehindTorch):
    """The language of Ascend C with ``api="torch"``, emulated on the CPU."""

    name = "Ascend C that registers itself, on the CPU"
    device_key = "PrivateUse1"

    def plain(self, source: KernelSource) -> tuple[Unit, tuple[str, ...]]:
        """Return the unit of the source as it is, and the header to include first."""
        unit = Unit(
            name=f"{library_name(source)}_on_cpu",
            source=source.path,
            generated=_launch_headers(source),
            include_dirs=(TORCH_INCLUDE, *INCLUDE, *source.include_dirs),
            flags=("-w", *_flags(source)),
            full_torch=True,
        )
        return unit, (registration_header(source),)

    def load(self, source: KernelSource, path: Path) -> Library:
        """Load the library, beside PyTorch's device for NPUs on the CPU."""
        if is_added(self.device_key) and not is_defined("opsmith_emulated::on_device"):
            raise MissingDependencyError(
                f"{source.what}: this process has a device of its own under the dispatch key "
                f"{self.device_key}, which torch_npu adds. Emulate in a process that does not "
                "import it."
            )
        ctypes.CDLL(str(self.device_library("opsmith_device")), ctypes.RTLD_GLOBAL)
        loaded = super().load(source, path)
        return _OnDevice(source.signature, source.device, source.what, loaded.path)


@dataclass
class _OnDevice(SelfRegistering):
    """A library whose kernel is called with tensors of the CPU, as tensors on the NPU."""

    def register(self) -> None:
        """Make the kernel that of tensors on the CPU."""
        from torch.library import Library

        self._registration = Library(self.signature.namespace, "FRAGMENT")
        self._registration.impl(self.signature.name, self._call, DEVICES["cpu"].dispatch_key)

    def unregister(self) -> None:
        """Undo the registration."""
        destroy(self._registration)

    def _call(self, *args: Value, **kwargs: Value) -> Value:
        import torch

        from opsmith.compat.torch_pytree import tree_map_only

        moves = torch.ops.opsmith_emulated
        packet = getattr(getattr(torch.ops, self.signature.namespace), self.signature.name)
        args, kwargs = tree_map_only(torch.Tensor, moves.on_device, (args, kwargs))
        with torch.no_grad():
            returned = packet.default(*args, **kwargs)
        return tree_map_only(torch.Tensor, moves.on_host, returned)


def emulated(source: KernelSource) -> KernelSource:
    """Return a source of Ascend C as a source to compile for the CPU."""
    language = AscendCOnCpu() if source.language.has_entry else _TorchAscendCOnCpu()
    return replace(source, language=language)
