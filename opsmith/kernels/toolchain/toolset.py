"""The tools of a build, as one value that cache keys are made from."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opsmith.kernels.toolchain import compilers
from opsmith.kernels.toolchain.compilers import Compiler
from opsmith.kernels.toolchain.torch_paths import TorchPaths, torch_paths
from opsmith.system import machine
from opsmith.system.files import digest
from opsmith.system.version import version

TARGET_VERSION = "0x020a000000000000"
"""The oldest PyTorch whose stable ABI the libraries use: 2.10."""


@dataclass(frozen=True)
class Toolset:
    """A compiler, a processor to compile for, and a PyTorch to compile against.

    Attributes:
        compiler: the C++ compiler.
        architecture: see `machine.architecture`.
        paths: PyTorch's folders; `None` if it is not installed.
    """

    compiler: Compiler
    architecture: str
    paths: TorchPaths | None = field(compare=False)

    def facts(self, *, full_torch: bool) -> list[Any]:
        """Return everything in this that decides the result of a build, as a JSON value.

        Args:
            full_torch: whether the code uses PyTorch's C++ interface, and so fits one version only.
        """
        return [
            compiler_facts(self.compiler),
            self.architecture,
            machine.processor() if self.architecture == "native" else platform.machine(),
            self.paths.version if self.paths and full_torch else "",
            TARGET_VERSION,
            version(),
            digest(Path(__file__).with_name("cmake.py")),
        ]

    def owns(self, path: Path, *compilers: Compiler) -> bool:
        """Return whether a header belongs to a compiler, the system or PyTorch.

        Args:
            path: the header.
            compilers: further compilers, besides the host's.
        """
        folders = [Path("/usr/include"), Path("/usr/lib")]
        for compiler in (self.compiler, *compilers):
            # Resolve links, and look at the unresolved path too: /usr/local/cuda links to a
            # release.
            for program in (Path(compiler.path), Path(compiler.path).resolve()):
                prefix = program.parent.parent
                folders += [prefix / "include", prefix / "lib", prefix / "targets"]
        if self.paths is not None:
            folders += self.paths.include
        return any(path.is_relative_to(folder) for folder in folders)


def compiler_facts(compiler: Compiler) -> list[Any]:
    """Return the properties of a compiler that decide its output."""
    return [compiler.path, compiler.version, compiler.flags, compiler.link_flags]


def find_toolset(what: str) -> Toolset:
    """Return the tools of this environment.

    Args:
        what: what the tools are needed for, for the message.

    Raises:
        MissingDependencyError: there is no compiler.
    """
    return Toolset(
        compiler=compilers.find_compiler(what),
        architecture=machine.architecture(),
        paths=torch_paths(),
    )
