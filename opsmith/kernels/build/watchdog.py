"""Ends what opsmith started, and removes its temporary folders, where opsmith itself is killed.

A process that gets SIGKILL cleans nothing up, and its compilers go on. So while a process of
opsmith has something to lose, another one watches it: the watchdog, which waits for the end of that
process. Compilers start compilers, in process groups of their own, and some are started by others
(inductor's); what they have in common is a variable in their environment, the mark.

It is run by its path, so that it imports no more than this file does::

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

#: How often the watchdog looks whether the process that it watches is there.
_LOOK_SECONDS = 0.1
#: How long marked processes are looked for: those that are between fork and exec show no mark yet.
_SEARCH_SECONDS, _SEARCHES = 0.02, 3
#: For so long a process is killed that does not end, as one does not that waits for a broken disk.
_PATIENCE_SECONDS = 20.0


class _Terminated(BaseException):
    """SIGTERM came."""


class _Watchdog:
    """The process that watches this one."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.mark = f"{self.owner}-{os.urandom(8).hex()}"
        self.uses = 0
        environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
        self._process: subprocess.Popen[bytes] | None = None
        # Without it, what a kill leaves waits for the next run.
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, str(self.owner), self.mark],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
                cwd="/",
                start_new_session=True,  # what ends a process group does not end it
            )

    def tell(self, folder: Path) -> None:
        """Have it remove a folder, too."""
        if self._process is not None:
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(os.fsencode(folder) + b"\0")
                self._process.stdin.flush()

    def end(self) -> None:
        """End it; it does nothing then."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def forget(self) -> None:
        """In a fork: it watches the parent, and is to see that one's end."""
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
    """Within the block, what is started with what this yields ends with this process.

    It ends with the block too, where an interrupt or SIGTERM ends that. SIGTERM lets the block
    clean up, and then ends the process, as long as nobody else handles it.

    Args:
        folders: what else is to be removed where this process is killed.

    Yields:
        Variables for the environment of what is started.
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
    """Watch this process no more: whoever started it ends all that it starts."""
    global _supervised
    _supervised = True


@contextlib.contextmanager
def _termination() -> Iterator[None]:
    """Have SIGTERM leave the block in order, and then do what it does by itself."""
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
        # Who sends it again does not want to wait.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise _Terminated

    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if came:
            # The watchdog is still there, for what could not be cleaned up.
            os.kill(os.getpid(), signal.SIGTERM)
            # The first process of a container is not ended by it.
            raise SystemExit(128 + signal.SIGTERM)


def end_marked(mark: str) -> None:
    """End the processes that have a mark, or one that begins with it and a dot."""
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
        return []  # a system that does not say


def _has(process: int, names: list[bytes]) -> bool:
    try:
        with open(f"/proc/{process}/environ", "rb") as file:
            environment = b"\0" + file.read() + b"\0"
    except OSError:
        return False  # gone, or another user's
    return any(name in environment for name in names)


def _forget() -> None:
    """In a fork, begin as a process that has no watchdog."""
    global _watchdog, _lock
    _lock = threading.Lock()
    if _watchdog is not None:
        _watchdog.forget()
        _watchdog = None


def _watch(parent: int, mark: str) -> None:
    """Wait for a process to end; then end what has its mark, and remove its folders."""
    # It ends with that process, and by nothing else.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    told, pipe = b"", [0]
    while True:
        # It may have ended before this process looked for the first time.
        there = os.getppid() == parent
        # A pipe that is closed says that the process ends, or that something closed all it found.
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
