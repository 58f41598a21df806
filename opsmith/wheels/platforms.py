"""The platforms of wheels, and a compiler that builds for them on any Linux."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from opsmith.errors import OptionError, no_such
from opsmith.kernels.toolchain import compilers
from opsmith.kernels.toolchain.torch_paths import linked_in_place
from opsmith.system.files import cache_folder, write_atomically
from opsmith.system.scratch import scratch_folder
from opsmith.system.temporarily import environment


@dataclass(frozen=True)
class Platform:
    """One platform.

    Attributes:
        name: the name that users give.
        machine: the processor's family, as in `platform.machine`.
        levels: the values of ``-march`` for which kernels are compiled.
        target: the target for Zig's compiler, with the oldest supported C library; empty to use
            this machine's compiler.
        tag: the platform tag of wheels; empty if it follows from the libraries.
    """

    name: str
    machine: str
    levels: tuple[str, ...]
    target: str = ""
    tag: str = ""


_LEVELS = {"x86_64": ("x86-64-v2", "x86-64-v3", "x86-64-v4"), "aarch64": ("armv8-a",)}
PLATFORMS = {
    one.name: one
    for one in (
        *(
            Platform(name, name, levels, f"{name}-linux-gnu.2.28", f"manylinux_2_28_{name}")
            for name, levels in _LEVELS.items()
        ),
        Platform("native", platform.machine(), _LEVELS.get(platform.machine(), ("generic",))),
    )
}


def find_platform(name: str) -> Platform:
    """Return a platform by its name or its tag."""
    for one in PLATFORMS.values():
        if name in (one.name, one.tag):
            return one
    raise OptionError(no_such("platform", name, PLATFORMS))


def find_levels(kind: Platform, asked: Sequence[str] | None) -> tuple[str, ...]:
    """Return the processor levels to compile for: those that were asked for, or all.

    Other values of ``-march`` are not accepted: a library states which instructions it needs, so
    that no processor without them loads it, and opsmith knows these for the levels alone.
    """
    for level in asked or ():
        if level not in kind.levels:
            raise OptionError(no_such(f"processor level of {kind.name}", level, kind.levels))
    return tuple(asked or kind.levels)


@contextmanager
def compiling_for(kind: Platform, level: str) -> Iterator[None]:
    """Build libraries for a platform, instead of for this machine's Python, in a ``with`` block."""
    chosen = {
        "CXXFLAGS": f"{os.environ.get('CXXFLAGS', '')} -DOPSMITH_OWN_CXX_RUNTIME",
        "LDFLAGS": f"{os.environ.get('LDFLAGS', '')} {_LINK} {'' if kind.target else _HIDDEN}",
        "OPSMITH_ARCH": level,
        # Do not build for the GPUs of the building machine only.
        "OPSMITH_CUDA_ARCHS": os.environ.get("OPSMITH_CUDA_ARCHS") or "all-major",
    }
    if kind.target:
        chosen["CXX"] = compiler_for(kind, "opsmith wheel")
    with linked_in_place(torch_stub(kind)), environment(chosen):
        yield


# PyTorch's symbols are resolved when a library is loaded; see `torch_stub`. The compiler's C++
# library is linked statically, since the target machine may have another.
_LINK = (
    "-Wl,-z,undefs -Wl,--no-as-needed -Wl,--strip-all -Wl,--gc-sections "
    "-static-libstdc++ -static-libgcc"
)
# Drop unused parts of that library by not exporting them. Zig's C++ library exports nothing.
_HIDDEN = "-Wl,--exclude-libs,ALL"


def compiler_for(kind: Platform, what: str) -> str:
    """Return the path of a compiler for a platform.

    Args:
        kind: the platform.
        what: the thing to be compiled, for the message.
    """
    if not kind.target:
        return compilers.find_compiler(what).path
    path = cache_folder() / "wheels" / f"c++-{kind.target}"
    write_atomically(path, _SCRIPT.format(python=sys.executable, target=kind.target))
    path.chmod(0o755)
    return str(path)


# Zig writes processor names with underscores.
_SCRIPT = """#!/bin/sh
# Written by opsmith: a C++ compiler for {target}.
for word do
  shift
  case $word in
    -march=armv8-a) ;;
    -march=*) set -- "$@" "-march=$(printf %s "${{word#-march=}}" | tr - _)" ;;
    *) set -- "$@" "$word" ;;
  esac
done
exec "{python}" -m ziglang c++ -target {target} "$@"
"""


def torch_stub(kind: Platform) -> Path:
    """Return a folder of stub libraries named like PyTorch's, so that libraries can link to them.

    The real libraries may be for another machine or not installed, and need a newer C library than
    the platform has.
    """
    folder = cache_folder() / "wheels" / kind.name
    for name in ("libtorch_cpu.so", "libtorch_cuda.so"):
        library = folder / name
        if library.exists():
            continue
        source = folder / "stub.cpp"
        write_atomically(source, "// Stands for PyTorch's library when a wheel is linked.\n")
        compiler = compiler_for(kind, "opsmith wheel")
        options = ["-shared", "-nostdlib", f"-Wl,-soname,{name}"]
        with scratch_folder("stub") as work:
            made = work / name
            subprocess.run([compiler, *options, "-o", str(made), str(source)], check=True)
            write_atomically(library, made.read_bytes())
    return folder
