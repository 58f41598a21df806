"""End the processes that opsmith started, and remove its temporary folders, if it is killed.

A process that gets SIGKILL cannot clean up, and the compilers that it started go on. So while a
process of opsmith has something to clean up, another process waits for its end: the watchdog.
Compilers start compilers, some of them in process groups of their own, and Inductor starts some
too. All of them inherit an environment variable, the mark, by which the watchdog finds them.

The watchdog is run by its path, so that it imports nothing but the imports of this file::

    python watchdog.py PID MARK
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

VARIABLE = "OPSMITH_STARTED_BY"
"""The environment variable that holds the mark."""

#: The interval in which the watchdog looks whether the watched process still exists.
_LOOK_SECONDS = 0.1
#: How often marked processes are searched for again: between fork and exec, a process shows no
#: mark.
_SEARCH_SECONDS, _SEARCHES = 0.02, 3
#: The longest time to kill processes for: a process that waits for a broken disk does not end.
_PATIENCE_SECONDS = 20.0


class _Terminated(BaseException):
    """Raised when SIGTERM arrives."""


class _Watchdog:
    """The process that watches this process."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.mark = f"{self.owner}-{os.urandom(8).hex()}"
        self.uses = 0
        environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
        self._process: subprocess.Popen[bytes] | None = None
        # If it cannot be started, the next run of opsmith removes what a kill leaves behind.
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, str(self.owner), self.mark],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
                cwd="/",
                start_new_session=True,  # signals to this process group do not reach it
            )

    def tell(self, folder: Path) -> None:
        """Have the watchdog remove a folder, too."""
        if self._process is not None:
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(os.fsencode(folder) + b"\0")
                self._process.stdin.flush()

    def end(self) -> None:
        """End the watchdog without any cleaning up."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def forget(self) -> None:
        """Disconnect from the watchdog in a forked child: it watches the parent only."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.returncode = 0
            self._process.stdin.close()


_lock = threading.Lock()
_watchdog: _Watchdog | None = None
_numbers = itertools.count()
_supervised = False


@contextlib.contextmanager
def watched(*folders: Path) -> Iterator[dict[str, str]]:
    """End the marked processes with this process, or when the block is interrupted.

    Processes are marked if they are started in the block with the variables that it yields. An
    interrupt or SIGTERM ends them, too. If SIGTERM has no other handler, it lets the block clean
    up, and then ends this process.

    Args:
        folders: folders that the watchdog removes if this process is killed.

    Yields:
        Environment variables for the processes to mark.
    """
    global _watchdog
    with _lock:
        if _watchdog is None and not _supervised:
            _watchdog = _Watchdog()
        own = _watchdog
        if own is not None:
            own.uses += 1
            for folder in folders:
                own.tell(folder)
    if own is None:
        yield {}
        return
    mark = f"{own.mark}.{next(_numbers)}"
    try:
        with _termination():
            try:
                yield {VARIABLE: mark}
            except Exception:
                raise
            except BaseException:
                end_marked(mark)
                raise
    finally:
        with _lock:
            own.uses -= 1
            if own.uses == 0 and own is _watchdog:
                _watchdog = None
                own.end()


def be_supervised() -> None:
    """Start no watchdog in this process: its supervisor ends all processes that it starts."""
    global _supervised
    _supervised = True


@contextlib.contextmanager
def _termination() -> Iterator[None]:
    """Have SIGTERM leave the block in order, and then act as usual."""
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    ):
        yield
        return
    came = False

    def leave(*_: object) -> None:
        nonlocal came
        came = True
        # A second SIGTERM ends the process at once.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise _Terminated

    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if came:
            # The watchdog still runs, and cleans up the rest.
            os.kill(os.getpid(), signal.SIGTERM)
            # SIGTERM does not end the first process of a container.
            raise SystemExit(128 + signal.SIGTERM)


def end_all() -> None:
    """End the processes of all blocks that are open, those of other threads too."""
    own = _watchdog
    if own is not None:
        end_marked(own.mark)


def end_marked(mark: str) -> None:
    """End the processes whose mark is `mark`, or begins with it and a dot."""
    names = [f"\0{VARIABLE}={mark}{end}".encode() for end in ("\0", ".")]
    deadline = time.monotonic() + _PATIENCE_SECONDS
    searches = 0
    while searches < _SEARCHES and time.monotonic() < deadline:
        found = [process for process in _processes() if _has(process, names)]
        for process in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        searches = 0 if found else searches + 1
        time.sleep(_SEARCH_SECONDS)


def _processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []  # a system without /proc


def _has(process: int, names: list[bytes]) -> bool:
    try:
        with open(f"/proc/{process}/environ", "rb") as file:
            environment = b"\0" + file.read() + b"\0"
    except OSError:
        return False  # the process is gone, or another user's
    return any(name in environment for name in names)


def _forget() -> None:
    """Forget the parent's watchdog in a forked child."""
    global _watchdog, _lock
    _lock = threading.Lock()
    if _watchdog is not None:
        _watchdog.forget()
        _watchdog = None


def _watch(parent: int, mark: str) -> None:
    """Wait for a process to end; then end the processes with its mark, and remove its folders."""
    # Only the end of that process ends the watchdog.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    told, pipe = b"", [0]
    while True:
        # The process may have ended before the watchdog first looked.
        there = os.getppid() == parent
        # A closed pipe means that the process ends, or that it closed all its open files.
        seconds = (_LOOK_SECONDS if pipe else _LOOK_SECONDS / 10) if there else 0
        if select.select(pipe, [], [], seconds)[0]:
            more = os.read(0, 1 << 16)
            told += more
            if not more:
                pipe = []
        elif not there:
            break
    end_marked(mark)
    for folder in told.split(b"\0")[:-1]:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _watch(int(sys.argv[1]), sys.argv[2])
else:
    os.register_at_fork(after_in_child=_forget)
