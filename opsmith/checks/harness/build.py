"""Build the harness for one kernel: the driver, and a library of the kernel and its adapter."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

from opsmith import kernels
from opsmith.checks.cases.failure import need_emulators
from opsmith.errors import BuildError, MissingDependencyError
from opsmith.kernels import adapters
from opsmith.kernels.codegen.render import render
from opsmith.kernels.source import KernelSource
from opsmith.kernels.toolchain import compilers
from opsmith.kernels.toolchain.program import build_program
from opsmith.kernels.toolchain.units import Generated
from opsmith.system.files import key_of

_HERE = Path(__file__).parent
_TEMPLATE = _HERE / "adapter.cpp.j2"
_INCLUDE = _HERE / "include"
_DRIVER = _HERE / "driver"
_PROGRAM = "opsmith-harness"

SANITIZERS = ("address", "undefined", "thread", "memory")
"""The supported values of ``-fsanitize=``; ``memory`` needs clang."""
_RUNTIMES = {"address": "asan", "undefined": "ubsan", "thread": "tsan", "memory": "msan"}
_TORCH_TEMPLATE = _HERE / "torch_adapter.cpp.j2"
_CALL = _HERE / "torch" / "call.cpp"


@dataclass(frozen=True)
class Build:
    """A kernel that is built for the harness.

    Attributes:
        program: the driver.
        library: the kernel and its adapter.
        source: the kernel's file.
        sanitizer: the sanitizer that both were built with; empty for none.
        with_lines: function that builds the library with debug information; it returns `None` if
            the build fails.
    """

    program: Path
    library: Path
    source: Path
    sanitizer: str = ""
    with_lines: Callable[[], Path | None] = field(default=lambda: None, compare=False, repr=False)


def _require_runtime(clang: str, sanitizer: str) -> None:
    """Require the libraries for a sanitizer, which Debian packages separately from clang."""
    asked = [clang, "--rtlib=compiler-rt", "-print-libgcc-file-name"]
    folder = Path(subprocess.run(asked, capture_output=True, text=True, check=False).stdout).parent
    if not any(folder.glob(f"libclang_rt.{_RUNTIMES[sanitizer]}*")):
        raise MissingDependencyError(
            f"--sanitize {sanitizer}: {clang} has no runtime for it in {folder}. Install it "
            "(Debian, Ubuntu: apt install libclang-rt-N-dev, with clang's version as N)."
        )


def build(
    source: KernelSource, sanitizer: str = "", *, emulated: bool = False, wraps: bool = False
) -> Build:
    """Build a kernel for the harness, or find it in the cache.

    Args:
        source: a kernel that is written against ``<opsmith/kernel.h>``; or one with
            ``api="torch"`` that is compiled for the CPU.
        sanitizer: one of `SANITIZERS`, or empty.
        emulated: whether `source` is a CUDA kernel that is compiled for the CPU.
        wraps: whether an integer that overflows wraps, as the processor does; else the compiler may
            compute in 64 bits what is declared in 32.

    Raises:
        BuildError: the kernel does not compile.
        MissingDependencyError: the compiler or the libraries for the sanitizer are missing.
        Inapplicable: the emulators, whose headers the driver includes, are not installed.
    """
    need_emulators("calling a kernel alone")
    compiler = compilers.find_compiler(_PROGRAM)
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
        # The first report ends the call, since later ones may be its consequences.
        asked = f"-fsanitize={sanitizer}"
        options = [asked, "-fno-sanitize-recover=all"]
        if sanitizer == "memory":
            # Uninitialised memory is reported where it is used, which is in the driver if a result
            # holds it. So track its origin.
            options.append("-fsanitize-memory-track-origins=2")
        flags = (*options, "-O1")
        # With clang, only the program contains the sanitizer's own functions.
        links = (asked, "-Wl,-z,undefs")
        settings["SANITIZE"] = ";".join(options)
    signature = source.signature
    one = len(signature.results) == 1
    names = ["the result" if one else f"the result '{r.name}'" for r in signature.results]

    def adapter(kernel: KernelSource) -> str:
        write = partial(adapters.source, _TEMPLATE, kernel.signature, kernel.device)
        return write(strided=kernel.strided, names=names, emulated=emulated)

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
            made_of=[_TEMPLATE, Path(__file__)],
            include=_INCLUDE,
            flags=flags,
        )

    if not source.language.has_entry:
        program = program_of(settings)
        behind_torch = _library_behind_torch(source, names)
        return Build(program, behind_torch, source.path, with_lines=lambda: behind_torch)

    @cache
    def with_lines() -> Path | None:
        # Debug information (`-g`) changes neither code nor addresses.
        with contextlib.suppress(BuildError):
            return library("-g")
        return None

    # Without a sanitizer, the kernel's object file is the one in other runtimes' libraries, and
    # `with_lines` is built only after a fault. A sanitizer prints lines itself; more debug
    # information than `-g1` takes a fifth longer to build.
    more = ("-g1", "-fno-omit-frame-pointer") if sanitizer else ()
    own = library(*more, *(("-fwrapv", "-g1") if wraps else ()))
    program = program_of(settings)
    return Build(program, own, source.path, sanitizer, (lambda: own) if wraps else with_lines)


def program_of(settings: Mapping[str, str]) -> Path:
    """Build the program that calls kernels, or find it, with these settings of CMake."""
    from opsmith.kernels.languages.emulated_cuda import INCLUDE as EMULATOR_INCLUDE

    include_dirs = [kernels.INCLUDE, _INCLUDE, EMULATOR_INCLUDE]
    return build_program(_PROGRAM, _DRIVER, settings, include_dirs=include_dirs)


def _library_behind_torch(source: KernelSource, names: list[str]) -> Path:
    """Build the library by which the harness calls an emulated kernel with ``api="torch"``."""
    from opsmith.kernels.languages.emulated_cuda import BehindTorch

    signature, language = source.signature, source.language
    assert isinstance(language, BehindTorch)
    language.require(source)
    device = language.device_library("opsmith_torch_on_cpu", (_CALL,), (_INCLUDE,))

    def files() -> dict[str, str]:
        row = source.device_row
        how = {"device": row.dlpack, "alignment": 1 if source.strided else row.alignment}
        text = render(_TORCH_TEMPLATE, signature, names=names, **how)
        return {f"{signature.name}_harness.cpp": text}

    headers = sorted(_INCLUDE.rglob("*.h"))
    parts = [signature.qualname, signature.schema(), *names, _TORCH_TEMPLATE.read_text()]
    parts += [*(header.read_text() for header in headers), str(device), str(source.strided)]
    links = (*source.link_libraries, str(device), f"-Wl,-rpath,{device.parent}")
    return replace(source, link_libraries=links).build_beside(
        f"{signature.namespace}__{signature.name}__torch_on_cpu",
        Generated(key_of(parts), files),
        torch="full",
        what=f"{source.what[:-1]}, on the CPU)",
        include_dirs=[_INCLUDE],
    )
