"""Detect that a kernel forked its process: the copy would go on and return from the call too.

A program that a kernel starts (a compiler) is not a copy.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opsmith.checks.cases.failure import Failure

#: The flag of a process that was forked and has not executed a program: PF_FORKNOEXEC of Linux.
_COPY = 0x40
_THREADS = "/proc/self/task"
#: A file that ends with the id of the process or thread that was started last.
_STARTED = "/proc/loadavg"
_FLAGS_AFTER_NAME = 6

FORKED = (
    "forked the process that called it: a copy of that is there after the call, and may return "
    "from it too. Start a thread or a program instead, or wait for the copy's end in the call"
)

FORK_CODE = "OPS-CALL-FORK"


class Forks:
    """Detect forks of this process after the creation of this object."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._before = _copies(_last_started())

    def happened(self) -> bool:
        """Return whether this process has a new copy; called in a copy, end the copy."""
        if os.getpid() != self._process:
            os._exit(0)
        return not _copies(_last_started()) <= self._before


@contextmanager
def forking_fails() -> Iterator[None]:
    """Require that this process is not forked in a ``with`` block."""
    forks = Forks()
    try:
        yield
    finally:
        if forks.happened():
            raise Failure(FORKED, code=FORK_CODE)


# The functions below run twice for every call of a kernel. Using pathlib, or inspecting each thread
# of this process although no process was started meanwhile, takes longer than many kernels.


def _last_started() -> int:
    """Return the id of the process or thread that was started last; 0 if it is unknown."""
    with contextlib.suppress(OSError, ValueError), open(_STARTED, "rb", buffering=0) as file:
        return int(file.readall().split()[-1])
    return 0


def _copies(started: int) -> set[str]:
    """Return the children that are copies of this process, including ended ones; none if unknown.

    Args:
        started: id of the process or thread that was started last. The copies are looked up again
            only if it changed.
    """
    if not started:
        return _look()
    return _looked(started, os.getpid())


@functools.lru_cache(maxsize=1)
def _looked(started: int, process: int) -> set[str]:
    del started, process
    return _look()


def _look() -> set[str]:
    return {child for child in _children() if _is_copy(child)}


def _children() -> set[str]:
    found: set[str] = set()
    with contextlib.suppress(FileNotFoundError):  # not Linux
        for thread in os.listdir(_THREADS):
            with (
                contextlib.suppress(OSError),  # the thread has ended
                open(f"{_THREADS}/{thread}/children", "rb", buffering=0) as file,
            ):
                found.update(file.readall().decode().split())
    return found


def _is_copy(process: str) -> bool:
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return bool(int(stat.rpartition(")")[2].split()[_FLAGS_AFTER_NAME]) & _COPY)
