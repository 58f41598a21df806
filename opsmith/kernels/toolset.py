"""What a build is made with, as one value that cache keys can be made of."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opsmith.kernels import machine, toolchain
from opsmith.kernels.files import digest
from opsmith.kernels.nvcc import cuda_architectures, find_nvcc
from opsmith.kernels.toolchain import Compiler
from opsmith.kernels.torch_paths import TorchPaths, torch_paths
from opsmith.kernels.version import version

TARGET_VERSION = "0x020a000000000000"
"""The oldest PyTorch whose stable ABI the libraries use: 2.10."""


@dataclass(frozen=True)
class Toolset:
    """What compiles, for which processor, against which PyTorch.

    Attributes:
        compiler: for C++.
        nvcc: for CUDA, where some is compiled.
        architecture: see `machine.architecture`.
        cuda_architecture: see `nvcc.cuda_architectures`; empty without CUDA.
        paths: PyTorch's folders, where it is installed.
    """

    compiler: Compiler
    nvcc: Compiler | None
    architecture: str
    cuda_architecture: str
    paths: TorchPaths | None = field(compare=False)

    def facts(self, *, full_torch: bool) -> list[Any]:
        """All of this that decides what is built, as JSON takes it.

        Args:
            full_torch: whether PyTorch's C++ interface is used, and so this very version.
        """
        return [
            compiler_facts(self.compiler),
            compiler_facts(self.nvcc) if self.nvcc else "",
            self.architecture,
            self.cuda_architecture,
            machine.processor() if self.architecture == "native" else platform.machine(),
            self.paths.version if self.paths and full_torch else "",
            TARGET_VERSION,
            version(),
            digest(Path(__file__).with_name("cmake.py")),
        ]

    def owns(self, path: Path) -> bool:
        """Whether a header belongs to the compiler, the system or PyTorch, all in `facts`."""
        folders = [Path("/usr/include"), Path("/usr/lib"), Path("/usr/local/cuda")]
        for compiler in (self.compiler, self.nvcc):
            if compiler is not None:
                prefix = Path(compiler.path).resolve().parent.parent
                folders += [prefix / "include", prefix / "lib", prefix / "targets"]
        if self.paths is not None:
            folders += self.paths.include
        return any(path.is_relative_to(folder) for folder in folders)


def compiler_facts(compiler: Compiler) -> list[Any]:
    """What of a compiler decides what it makes."""
    return [compiler.path, compiler.version, compiler.flags, compiler.link_flags]


def find_toolset(what: str, *, cuda: bool = False) -> Toolset:
    """The tools of this environment.

    Args:
        what: what they are needed for, for the message.
        cuda: whether they are to compile CUDA.

    Raises:
        MissingError: there is no compiler.
    """
    return Toolset(
        compiler=toolchain.find_compiler(what),
        nvcc=find_nvcc(what) if cuda else None,
        architecture=machine.architecture(),
        cuda_architecture=cuda_architectures() if cuda else "",
        paths=torch_paths(),
    )
