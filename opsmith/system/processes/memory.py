"""A memory limit for kernels that depends on the case, and is watched by another process.

A limit that the system enforces (``RLIMIT_AS``, ``RLIMIT_DATA``) includes memory that is reserved
and never touched, and compilers and allocators reserve gigabytes. The limit is therefore for the
resident size of the process that runs the kernels. Compilers run in other processes, which are not
included.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

#: Bytes for compilers inside the process (Dynamo, Inductor, exporters). Compiling, exporting and
#: packaging a call was measured to add less than 0.1 GiB.
_FLOOR = 2 << 30
#: Bytes for each byte of arguments: for copies in double precision, and references that expand
#: indices.
_FACTOR = 512
#: Allowed fraction of the machine's available memory.
_SHARE = 0.75
_BYTES_OF_AN_ELEMENT = 8


@dataclass(frozen=True)
class MemoryBound:
    """A limit for the memory of processes.

    Attributes:
        size: returns the bytes that they take now.
        most: the largest allowed number of bytes.
        excess: the message for processes that exceeded the limit.
    """

    size: Callable[[], int]
    most: int
    excess: str

    def exceeded(self) -> bool:
        """Return whether the processes are larger than the limit."""
        return self.size() > self.most


def bound_for(process: int, elements: int) -> MemoryBound | None:
    """Return the limit for a case with `elements` elements; `None` if the size is unknown."""
    before, added = resident(process), most_for(elements)
    if not before:
        return None
    excess = (
        f"took more than {added / 2**30:.1f} GiB of memory, and was ended before the machine ran "
        "out"
    )
    return MemoryBound(partial(resident, process), before + added, excess)


def most_for(elements: int) -> int:
    """Return the bytes that a case with `elements` elements may take."""
    wanted = _FLOOR + _FACTOR * _BYTES_OF_AN_ELEMENT * elements
    left = available()
    return wanted if left is None else min(wanted, int(_SHARE * left))


def resident(process: int) -> int:
    """Return the resident bytes of a process; 0 if the system does not report them."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def available() -> int | None:
    """Return the available bytes of the machine; `None` if the system does not report them."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return None
