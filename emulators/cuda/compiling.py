"""The compiler's options for CUDA that runs on the CPU."""

from __future__ import annotations

import re
from pathlib import Path

_HERE = Path(__file__).parent
#: Headers in place of the CUDA toolkit's, and the emulation itself.
INCLUDE = _HERE / "include"
RUNTIME = _HERE / "runtime"
#: Has the linker put variables of the device where no other memory of the library is near.
APART = ("--section-start=opsmith_device=0x20000000",)
#: CUDA code reads memory through pointers of other types, which nvcc allows.
ALIASING = "-fno-strict-aliasing"
#: The flags that nvcc and a C++ compiler share; other flags of nvcc are dropped.
_COMMON_FLAGS = ("-D", "-U", "-I", "-std=")
#: Have the compiled code report accesses and undefined behaviour to the runtime; see
#: runtime/hooks.cpp.
_WATCHED = (
    "-fsanitize=thread",
    "-fsanitize=alignment,bounds,integer-divide-by-zero,shift-exponent,signed-integer-overflow",
    "-fno-sanitize-recover=all",
)
#: Have local variables begin with a pattern, so that a kernel that reads one which nothing wrote is
#: never right by chance. GCC knows this from version 12 on.
_WITH_PATTERNS = "-ftrivial-auto-var-init=pattern"
#: Report accesses through `volatile` as such; and do not move a read to where its value is used,
#: which may be behind the question of whether the element exists.
_WATCHED_BY_GCC = ("--param=tsan-distinguish-volatile=1", "-fno-tree-sink")
_WATCHED_BY_CLANG = (
    *("-mllvm", "-tsan-distinguish-volatile=1"),
    *("-mllvm", "-instcombine-code-sinking=0"),
)


def watching_flags(version: str) -> tuple[str, ...]:
    """Return the flags that have code report its accesses to the runtime.

    Args:
        version: what the compiler says of its version.
    """
    gcc = is_gcc(version)
    early = gcc and re.match(r"[^\n]*\) (?:\d|1[01])\.", version) is not None
    own = _WATCHED_BY_GCC if gcc else _WATCHED_BY_CLANG
    return (*_WATCHED, *own, *(() if early else (_WITH_PATTERNS,)))


def is_gcc(version: str) -> bool:
    """Return whether the compiler that says this of its version is GCC."""
    return "Free Software Foundation" in version  # in every language


def line_flags(*, gcc: bool) -> tuple[str, ...]:
    """Return the flags that add line numbers to an object, which messages need."""
    # With DWARF 5, addr2line of binutils 2.40 looks for a unit's first function in the rewritten
    # file.
    flags = ("-g1", "-gdwarf-4")
    # For each class, GCC 12 walks through all other classes of its namespace: more than half of the
    # time that PyTorch's headers take.
    return (*flags, "-femit-struct-debug-detailed=none") if gcc else flags


def common_flags(flags: tuple[str, ...]) -> tuple[str, ...]:
    """Return the flags that a C++ compiler understands as nvcc does, with their separate values."""
    kept = []
    own = ("-fsanitize=", "-fno-", *_COMMON_FLAGS)
    for position, flag in enumerate(flags):
        follows = position > 0 and flags[position - 1] in ("-D", "-U", "-I", "-include")
        if follows or flag == "-include" or flag.startswith(own):
            kept.append(flag)
    return tuple(kept)


def runtime_source() -> str:
    """Return the source of the runtime, as one unit: headers take as long to compile as it does."""
    return "".join(f'#include "{path.name}"\n' for path in sorted(RUNTIME.glob("*.cpp")))
