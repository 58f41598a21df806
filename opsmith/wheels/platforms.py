"""The machines that a wheel is for, and the compiler that builds for them from any Linux."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from opsmith.errors import ExportError
from opsmith.kernels.files import cache_folder, write_atomically


@dataclass(frozen=True)
class Platform:
    """One platform.

    Attributes:
        tag: as wheels say it.
        machine: the processor's family, as `platform.machine` says it.
        target: as the compiler says it, with the oldest C library that serves.
        levels: what kernels are compiled for, values of ``-march``.
    """

    tag: str
    machine: str
    target: str
    levels: tuple[str, ...]


PLATFORMS = {
    platform.machine: platform
    for platform in (
        Platform(
            "manylinux_2_28_x86_64",
            "x86_64",
            "x86_64-linux-gnu.2.28",
            ("x86-64-v2", "x86-64-v3", "x86-64-v4"),
        ),
        Platform("manylinux_2_28_aarch64", "aarch64", "aarch64-linux-gnu.2.28", ("armv8-a",)),
    )
}


def find_platform(name: str) -> Platform:
    """A platform by its machine or its tag.

    Raises:
        ExportError: there is no such platform.
    """
    for platform in PLATFORMS.values():
        if name in (platform.machine, platform.tag):
            return platform
    raise ExportError(f"there is no platform {name!r}; there are {', '.join(PLATFORMS)}")


@contextmanager
def compiling_for(platform: Platform, level: str) -> Iterator[None]:
    """Within a ``with`` block, build libraries for a platform in place of this machine."""
    compiler = cache_folder() / "wheels" / f"c++-{platform.target}"
    write_atomically(compiler, _SCRIPT.format(python=sys.executable, target=platform.target))
    compiler.chmod(0o755)
    stub = _torch_stub(platform)
    chosen = {
        "CXX": str(compiler),
        "CXXFLAGS": "",
        "LDFLAGS": f"-Wl,-z,undefs -Wl,--no-as-needed {stub}",
        "OPSMITH_ARCH": level,
    }
    before = {name: os.environ.get(name) for name in chosen}
    os.environ.update(chosen)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


# Zig names processors with underscores, and knows no option that is for GNU's linker alone.
_SCRIPT = """#!/bin/sh
# Written by opsmith: a C++ compiler for {target}.
for word do
  shift
  case $word in
    -march=armv8-a) ;;
    -march=*) set -- "$@" "$(printf %s "$word" | tr - _ | sed 's/^_march/-march/')" ;;
    -Wl,-z,undefs) set -- "$@" -Wl,-z,undefs ;;
    *) set -- "$@" "$word" ;;
  esac
done
exec "{python}" -m ziglang c++ -target {target} "$@"
"""


def _torch_stub(platform: Platform) -> str:
    """A library of the name of PyTorch's, for the linker: the libraries need the real one by it.

    The real one may be for another machine, and wants a newer C library than the platform has.
    """
    import subprocess

    folder = cache_folder() / "wheels" / platform.machine
    library = folder / "libtorch_cpu.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        source = folder / "torch_cpu.c"
        write_atomically(source, "/* Stands for PyTorch's library when a wheel is linked. */\n")
        command = [sys.executable, "-m", "ziglang", "cc", "-target", platform.target, "-shared"]
        named = ["-Wl,-soname,libtorch_cpu.so", "-nostdlib", "-o", str(library), str(source)]
        subprocess.run([*command, *named], check=True)
    return str(library)
