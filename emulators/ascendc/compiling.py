"""Choose the compiler's options for Ascend C that runs on the CPU."""

from __future__ import annotations

from pathlib import Path

from emulators.cuda import compiling

_HERE = Path(__file__).parent
#: Headers in place of CANN's, and those of the emulated memory, which CUDA's emulation has too.
INCLUDE = (_HERE / "include", compiling.INCLUDE)
#: What the runtime is compiled with besides.
RUNTIME = (_HERE / "runtime", compiling.RUNTIME)
#: An integer that overflows wraps on the NPU.
FLAGS = (compiling.ALIASING, "-fwrapv", "-O1")
#: What bisheng takes to insert no order between instructions.
_NO_ORDER = "--cce-auto-sync=off"


def common_flags(flags: tuple[str, ...]) -> tuple[str, ...]:
    """Return the flags that a C++ compiler understands as bisheng does."""
    own = ("-DOPSMITH_NPU_ORDERS=false",) if _NO_ORDER in flags else ()
    return (*compiling.common_flags(flags), *own)


def runtime_source() -> str:
    """Return the source of the runtime, as one unit with that of the emulated memory."""
    return f'{compiling.runtime_source()}#include "cores.cpp"\n'
