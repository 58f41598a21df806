"""Builds the harness around one kernel: the driver, and a library of the kernel and its adapter."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from opsmith import kernels
from opsmith.errors import BuildError, MissingDependencyError
from opsmith.kernels import adapters
from opsmith.kernels.build import toolchain
from opsmith.kernels.build.program import build_program
from opsmith.kernels.source import KernelSource

_HERE = Path(__file__).parent
_TEMPLATE = _HERE / "adapter.cpp.j2"
_INCLUDE = _HERE / "include"
_DRIVER = _HERE / "driver"
_PROGRAM = "opsmith-harness"

SANITIZERS = ("address", "undefined", "thread", "memory")
"""What ``-fsanitize=`` may be; ``memory`` needs clang."""
_RUNTIMES = {"address": "asan", "undefined": "ubsan", "thread": "tsan", "memory": "msan"}


@dataclass(frozen=True)
class Build:
    """A kernel that is ready to be called.

    Attributes:
        program: the driver.
        library: the kernel and its adapter.
        source: the kernel's file.
        sanitizer: which one both were built with; empty for none.
        with_lines: gives the library once more, with what its lines are told by; `None` where that
            does not build.
    """

    program: Path
    library: Path
    source: Path
    sanitizer: str = ""
    with_lines: Callable[[], Path | None] = field(default=lambda: None, compare=False, repr=False)


def _require_runtime(clang: str, sanitizer: str) -> None:
    """Raise where clang came without the libraries that sanitizers need, as Debian has it.

    Raises:
        MissingDependencyError: says how to get them.
    """
    asked = [clang, "--rtlib=compiler-rt", "-print-libgcc-file-name"]
    folder = Path(subprocess.run(asked, capture_output=True, text=True, check=False).stdout).parent
    if not any(folder.glob(f"libclang_rt.{_RUNTIMES[sanitizer]}*")):
        raise MissingDependencyError(
            f"--sanitize {sanitizer}: {clang} has no runtime for it in {folder}. Install it "
            "(Debian, Ubuntu: apt install libclang-rt-N-dev, with clang's version as N)."
        )


def build(source: KernelSource, sanitizer: str = "", *, emulated: bool = False) -> Build:
    """Build a kernel for the harness, or find it in the cache.

    Args:
        source: a kernel that is written against ``<opsmith/kernel.h>``.
        sanitizer: one of `SANITIZERS`, or none.
        emulated: whether `source` is a kernel of CUDA that is compiled for the CPU.

    Raises:
        BuildError: it does not compile.
        MissingDependencyError: there is no compiler, or not what the sanitizer needs.
    """
    compiler = toolchain.find_compiler(_PROGRAM)
    if sanitizer == "memory" and "clang" not in Path(compiler.path).name:
        raise MissingDependencyError(
            "--sanitize memory: only clang finds reads of memory that was never written, and the "
            f"C++ compiler here is {compiler.path}. "
            + (
                "Set CXX=clang++."
                if shutil.which("clang++")
                else "Install it (Debian, Ubuntu: apt install clang) and set CXX=clang++."
            )
        )
    if sanitizer and "clang" in Path(compiler.path).name:
        _require_runtime(compiler.path, sanitizer)
    flags: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    settings = {}
    if sanitizer:
        # The first report ends the call: what follows it may be its consequence.
        asked = f"-fsanitize={sanitizer}"
        options = [asked, "-fno-sanitize-recover=all"]
        if sanitizer == "memory":
            # What was never written shows where it is used: in the driver, if a result holds it.
            options.append("-fsanitize-memory-track-origins=2")
        flags = (*options, "-O1")
        # The sanitizer's own functions are in the program, where clang puts them alone.
        links = (asked, "-Wl,-z,undefs")
        settings["SANITIZE"] = ";".join(options)
    signature = source.signature
    one = len(signature.results) == 1
    names = ["the result" if one else f"the result '{r.name}'" for r in signature.results]

    def adapter(kernel: KernelSource) -> str:
        return adapters.source(
            _TEMPLATE, kernel.signature, kernel.device, names=names, emulated=emulated
        )

    kind = "harness__emulated" if emulated else "harness"

    def library(*more: str) -> Path:
        kernel = replace(
            source,
            flags=(*source.flags, *more, *flags),
            link_libraries=(*links, *source.link_libraries),
        )
        return adapters.build(
            kernel,
            f"{kind}__{sanitizer}" if sanitizer else kind,
            adapter,
            title=f"the checks' harness{', ' + sanitizer if sanitizer else ''}",
            made_of=[_TEMPLATE, Path(__file__), *sorted(_INCLUDE.rglob("*.h"))],
            include_dirs=[_INCLUDE],
            flags=flags,
        )

    @cache
    def with_lines() -> Path | None:
        # To tell lines changes no code, and so no address.
        with contextlib.suppress(BuildError):
            return library("-g")
        return None

    # The kernel is the very object that other runtimes' libraries have. Its lines are asked for
    # where it has a fault; a sanitizer prints them itself. More than these takes a fifth longer.
    own = library(*(("-g1", "-fno-omit-frame-pointer") if sanitizer else ()))
    program = build_program(_PROGRAM, _DRIVER, settings, include_dirs=[kernels.INCLUDE, _INCLUDE])
    return Build(program, own, source.path, sanitizer, with_lines)
