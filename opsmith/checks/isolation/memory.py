"""How much memory a kernel may take: a bound that follows from the case, watched from outside.

A limit that the system enforces (``RLIMIT_AS``, ``RLIMIT_DATA``) counts what is reserved and never
touched, which compilers and allocators do by the gigabyte. So what counts is the resident size of
the one process that kernels run in. Compilers are processes of their own, and do not count.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

#: What a compiler inside the process (Dynamo, Inductor, exporters) may take; a call that was
#: compiled, exported and packaged was seen to add less than 0.1 GiB.
_FLOOR = 2 << 30
#: For each byte of arguments: copies in double precision, references that spread indices out.
_FACTOR = 512
#: Of what the machine has left.
_SHARE = 0.75
_BYTES_OF_AN_ELEMENT = 8


@dataclass(frozen=True)
class MemoryBound:
    """How large a process may become.

    Attributes:
        process: its id.
        before: its resident bytes when the case began.
        most: its resident bytes at which it is ended.
    """

    process: int
    before: int
    most: int

    def exceeded(self) -> bool:
        """Whether the process has taken more."""
        return resident(self.process) > self.most

    @property
    def excess(self) -> str:
        """What to say of a process that exceeded it."""
        size = (self.most - self.before) / 2**30
        return f"took more than {size:.1f} GiB of memory, and was ended before the machine ran out"


def bound_for(process: int, elements: int) -> MemoryBound | None:
    """What a process may take for a case of so many elements; `None` where nobody can tell."""
    before = resident(process)
    if not before:
        return None
    wanted = _FLOOR + _FACTOR * _BYTES_OF_AN_ELEMENT * elements
    left = available()
    if left is not None:
        wanted = min(wanted, int(_SHARE * left))
    return MemoryBound(process, before, before + wanted)


def resident(process: int) -> int:
    """The bytes of a process that lie in memory; 0 where the system does not say."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def available() -> int | None:
    """The bytes that programs can still have."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return None
