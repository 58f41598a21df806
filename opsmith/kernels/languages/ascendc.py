"""Ascend C against ``<opsmith/kernel.h>``, compiled by CANN's bisheng."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from opsmith.errors import DeclarationError, MissingDependencyError
from opsmith.kernels.languages.cpp import Cpp
from opsmith.kernels.toolchain.compilers import Compiler, tool_version
from opsmith.kernels.toolchain.units import Unit

if TYPE_CHECKING:
    from opsmith.kernels.source import KernelSource
    from opsmith.kernels.toolchain.recipe import LinkedWith

#: The `Language.asked` of Ascend C, and the suffixes of its files.
ASKED = "ascendc"
SUFFIXES = (".cpp", ".asc")
_KEY = "PrivateUse1"  # torch_npu's
_DEFAULT_ARCHITECTURE = "dav-2201"  # Atlas A2 and A3


class AscendC(Cpp):
    """The language Ascend C."""

    name = "Ascend C"
    asked = ASKED
    suffixes = SUFFIXES
    emulates = "npu"
    compilers = MappingProxyType({"bisheng": lambda what: find_bisheng(what)})

    def check(self, source: KernelSource) -> None:
        """Refuse a kernel that is not for an NPU, or that C++ kernels do not support."""
        require_npu(source)
        super().check(source)

    def require(self, source: KernelSource, *, torch: bool = True) -> None:
        """Require CANN's compiler and a C++ compiler."""
        super().require(source, torch=torch)
        find_bisheng(source.what)

    def unit(self, source: KernelSource) -> Unit:
        """Return the unit of a source, compiled by bisheng with CANN's headers."""
        return by_bisheng(super().unit(source), source.what)

    def beside(self, source: KernelSource) -> LinkedWith:
        """Return the options of C++, and CANN's runtime, which launches by bisheng's code call."""
        return with_runtime(super().beside(source), source.what)


LANGUAGE = AscendC()


def require_npu(source: KernelSource) -> None:
    """Refuse a kernel that is not for an NPU.

    Raises:
        DeclarationError: it is for another device.
    """
    if source.device_row.dispatch_key != _KEY:
        raise DeclarationError(
            f"{source.what}: Ascend C is for NPUs: register_kernel('npu', source=…, "
            f"language={ASKED!r})"
        )


def by_bisheng(unit: Unit, what: str) -> Unit:
    """Return a unit that bisheng compiles with CANN's headers; `what` is for messages."""
    home = _home(what)
    framework = home / "compiler" / "tikcpp" / "tikcfw"
    include = (home / "include", framework, framework / "impl", framework / "interface")
    architecture = os.environ.get("OPSMITH_NPU_ARCH", "").strip() or _DEFAULT_ARCHITECTURE
    flags = ("-xcce", f"--npu-arch={architecture}")
    return replace(
        unit,
        include_dirs=(*unit.include_dirs, *include),
        compiler=replace(find_bisheng(what), flags=flags),
    )


def with_runtime(beside: LinkedWith, what: str) -> LinkedWith:
    """Return what an adapter is linked with, and CANN's runtime; `what` is for messages."""
    folder = _home(what) / "lib64"
    runtime = [str(folder / f"lib{name}.so") for name in ("ascendcl", "runtime")]
    return {**beside, "link_libraries": [*beside["link_libraries"], *runtime]}


def find_bisheng(what: str) -> Compiler:
    """Return CANN's compiler, from ``ASCEND_HOME_PATH``.

    Args:
        what: what the compiler is needed for, for the message.

    Raises:
        MissingDependencyError: CANN is not installed, or not set up in this shell.
    """
    home = _home(what)
    folders = ("bin", "compiler/ccec_compiler/bin", "tools/bisheng_compiler/bin")
    for folder in folders:
        path = shutil.which("bisheng", path=str(home / folder))
        if path is not None:
            return Compiler(path, tool_version(path, what))
    raise MissingDependencyError(
        f"{what}: needs CANN's compiler bisheng, and there is none below ASCEND_HOME_PATH "
        f"({home}), in {', '.join(folders)}. Install the CANN toolkit, not its runtime alone."
    )


def _home(what: str) -> Path:
    home = os.environ.get("ASCEND_HOME_PATH", "")
    if not home:
        raise MissingDependencyError(
            f"{what}: needs CANN, whose compiler bisheng takes Ascend C, and ASCEND_HOME_PATH is "
            "not set. Install the CANN toolkit (https://www.hiascend.com/software/cann), and "
            "source the set_env.sh in its folder."
        )
    return Path(home)
