"""Find the tools of a build, from which cache keys are made; say what to do if one is missing."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from opsmith.errors import MissingDependencyError
from opsmith.kernels.toolchain.torch_paths import TorchPaths, torch_paths
from opsmith.system import machine
from opsmith.system.files import digest
from opsmith.system.version import version
from opsmith.untyped import Json

_LAUNCHERS = ("ccache", "sccache", "distcc")
_INSTALL = (
    "Install one (Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++; "
    "macOS: xcode-select --install), or set CXX to the path of yours."
)
TARGET_VERSION = "0x020a000000000000"
"""The oldest PyTorch whose stable ABI the libraries use: 2.10."""


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler.

    Attributes:
        path: the executable.
        version: its output for ``--version``.
        launcher: the compiler cache to run it through (``CXX="ccache g++"``), if any.
        flags: the further words of ``CXX``, and those of ``CXXFLAGS``.
        link_flags: the words of ``LDFLAGS``.
    """

    path: str
    version: str
    launcher: str | None = None
    flags: tuple[str, ...] = ()
    link_flags: tuple[str, ...] = ()

    @property
    def is_gcc(self) -> bool:
        """Return whether the compiler is GCC, whatever its file is called."""
        # GCC's version text contains these words in every language.
        return "Free Software Foundation" in self.version


def find_compiler(what: str) -> Compiler:
    """Return the compiler that ``CXX`` names, else the first of g++, clang++ and c++ on the PATH.

    Args:
        what: what the compiler is needed for, for the message.

    Raises:
        MissingDependencyError: there is no compiler.
    """
    words = shlex.split(os.environ.get("CXX", ""))
    launcher = None
    if words and Path(words[0]).name in _LAUNCHERS and len(words) > 1:
        launcher, words = shutil.which(words[0]), words[1:]
    if words:
        path = shutil.which(words[0])
        if path is None:
            raise MissingDependencyError(
                f"{what}: CXX names the C++ compiler {words[0]!r}, and there is no such program. "
                f"{_INSTALL}"
            )
    else:
        candidates = (shutil.which(name) for name in ("g++", "clang++", "c++"))
        path = next((found for found in candidates if found), None)
        if path is None:
            raise MissingDependencyError(
                f"{what}: needs a C++ compiler, and none is on the PATH. {_INSTALL}"
            )
    flags = (*words[1:], *shlex.split(os.environ.get("CXXFLAGS", "")))
    link_flags = tuple(shlex.split(os.environ.get("LDFLAGS", "")))
    return Compiler(path, tool_version(path, what), launcher, flags, link_flags)


def tool_version(path: str, what: str) -> str:
    """Return the output of ``path --version``."""
    try:
        return _said(path, os.stat(path).st_mtime_ns)
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingDependencyError(
            f"{what}: the compiler {path} does not run: {error}"
        ) from error


@cache
def _said(path: str, changed: int) -> str:
    """Return the output of a program for ``--version``; `changed` is when its file changed."""
    asked = [path, "--version"]
    done = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


def executable(tool: str, what: str) -> str:
    """Return the path of ``cmake`` or ``ninja``: the installed package's, else that on the PATH.

    Raises:
        MissingDependencyError: the tool is not installed.
    """
    try:
        if tool == "cmake":
            from cmake import CMAKE_BIN_DIR as folder
        else:
            from ninja import BIN_DIR as folder
        # Take the program in the package: the script of that name in bin/ starts a Python first.
        path = shutil.which(tool, path=str(folder))
    except ImportError:
        path = None
    path = path or shutil.which(tool)
    if path is None:
        raise MissingDependencyError(
            f"{what}: needs {tool}, which is not installed. Get it: pip install 'opsmith[build]'"
        )
    return path


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

    def facts(self, *, full_torch: bool) -> list[Json]:
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


def compiler_facts(compiler: Compiler) -> list[object]:
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
        compiler=find_compiler(what), architecture=machine.architecture(), paths=torch_paths()
    )
