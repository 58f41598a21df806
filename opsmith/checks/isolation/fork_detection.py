"""Whether a kernel forked its process: the copy goes on with what only one may do.

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

#: The flag of a process that began as a copy and is one still: PF_FORKNOEXEC of Linux.
_COPY = 0x40
_THREADS = "/proc/self/task"
#: Ends with the number of the process, or thread, that was started last.
_STARTED = "/proc/loadavg"
_FLAGS_AFTER_NAME = 6

FORKED = (
    "forked the process that called it: a copy of that is there after the call, and may return "
    "from it too. Start a thread or a program instead, or wait for the copy's end in the call"
)

FORK_CODE = "OPS-CALL-FORK"


class Forks:
    """Tells whether the process that made this has been forked since."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._before = _copies(_last_started())

    def happened(self) -> bool:
        """Whether there is a copy of this process that was not there before; a copy ends here."""
        if os.getpid() != self._process:
            os._exit(0)
        return not _copies(_last_started()) <= self._before


@contextmanager
def forking_fails() -> Iterator[None]:
    """A block in which this process must not be forked.

    Raises:
        Failure: it was, whatever else was raised.
    """
    forks = Forks()
    try:
        yield
    finally:
        if forks.happened():
            raise Failure(FORKED, code=FORK_CODE)


# Asked twice for every call of a kernel: what pathlib would take, or to look at each thread of this
# process where the system started nothing since, is longer than many kernels.


def _last_started() -> int:
    """The number of what the system started last, 0 where it does not say."""
    with contextlib.suppress(OSError, ValueError), open(_STARTED, "rb", buffering=0) as file:
        return int(file.readall().split()[-1])
    return 0


def _copies(started: int) -> set[str]:
    """The children that are copies of this process, ended ones too; none where nobody can tell.

    Args:
        started: what the system started last. So long as that is the same, they are.
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
    with contextlib.suppress(FileNotFoundError):  # this system does not say
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
