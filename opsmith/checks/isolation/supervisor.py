"""The supervisor's side: forking processes that may do anything, and ending all that they start.

A supervisor runs no kernel. So it sees whatever happens that its parent is gone, by the end of the
pipe that requests come through, and then ends its child and what that started, and removes the
folder that they wrote into.

Requests come on standard input, answers go out as lines of JSON on another file descriptor, since
kernels and references may print.
"""

from __future__ import annotations

import contextlib
import gc
import getpass
import json
import os
import re
import resource
import select
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from opsmith.checks.isolation.child_main import prctl, signal_at_parents_end
from opsmith.kernels.build.watchdog import be_supervised

_PR_SET_CHILD_SUBREAPER = 36

Serve = Callable[[int], None]
"""Answers all requests, on a file descriptor, in a child."""


def supervise(
    answers: int, folder: Path, prepare: Callable[[], None] | None, serve: Serve
) -> NoReturn:
    """Fork children that serve, until standard input ends; then end this process.

    Args:
        answers: the file descriptor for answers.
        folder: where temporary files go; removed at the end.
        prepare: imports what every child needs; starts no thread. `None` in a fork, which has it.
        serve: what a child does.
    """
    children = Children()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if prepare is not None:
        prepare()
    _keep_files_in(folder)
    # What is there by now is never collected, so a child need not copy it.
    gc.freeze()
    if prepare is not None:
        gc.enable()  # off since `start`
    # From here on the end of standard input says it, and what was started is ended in order.
    signal_at_parents_end(0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def work() -> None:
        answer(answers, event="ready", pid=os.getpid())
        serve(answers)

    while True:
        child = children.fork(work)
        code = children.outlive(child)
        if code is None:
            shutil.rmtree(folder, ignore_errors=True)
            # Somebody waits for this, and Python takes its time to end.
            os._exit(0)
        answer(answers, event="ended", pid=child, code=code)


class Children:
    """The children of this process, one after the other; nothing that one started outlives it."""

    def __init__(self) -> None:
        # A child's end is seen by the byte that its signal leaves here.
        self._ended, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        # What a kernel starts and leaves behind comes to this process, which ends it.
        prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def fork(self, work: Callable[[], None]) -> int:
        """Have a child do something; its process id."""
        _flush()
        child = os.fork()
        if child == 0:
            leave_after(lambda: self._begin(work))
        return child

    def _begin(self, work: Callable[[], None]) -> None:
        # A group of its own, to end it with whatever compiler it started.
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(self._ended)
        os.close(self._wake)
        signal_at_parents_end(signal.SIGKILL)
        be_supervised()
        # The first that the system ends where memory runs out.
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000")
        work()

    def outlive(self, child: int) -> int | None:
        """Wait until a child ends, and end what it started.

        Returns:
            Its exit code, or the negative number of the signal that ended it; `None` where the
            parent ended before.
        """
        poll = select.poll()
        poll.register(self._ended, select.POLLIN)
        poll.register(0, 0)  # its end only: what is in it is the child's
        while True:
            events = dict(poll.poll())
            if 0 in events:
                _end_everything(child)
                return None
            os.read(self._ended, 1 << 10)
            if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                _, status = os.waitpid(child, 0)
                _end_everything(child)
                return os.waitstatus_to_exitcode(status)


def leave_after(work: Callable[[], object]) -> None:
    """Do something, and end this process without what Python does at its end.

    It was forked: what is further up the stack, and what waits to be cleaned up, is its parent's.
    """
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        with contextlib.suppress(Exception):
            traceback.print_exc()
    finally:
        _flush()
        os._exit(code)


def answer(answers: int, **message: Any) -> None:
    """Send one line of JSON."""
    write_all(answers, (json.dumps(message) + "\n").encode())


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _flush() -> None:
    # A kernel may have closed them.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def _keep_files_in(folder: Path) -> None:
    """Write temporary files where they are removed with the worker; what is cached stays cached."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", _inductor_cache())
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    os.environ["TMPDIR"] = str(temporary)
    tempfile.tempdir = None


def _inductor_cache() -> str:
    """The folder that inductor keeps its cache in by itself.

    Its own function for that is in a package that takes longer to import than a check to run.
    """
    try:
        user = getpass.getuser()
    except (KeyError, ModuleNotFoundError, OSError):
        user = f"uid_{os.getuid()}"
    name = re.sub(r'[\\/:*?"<>|]', "_", user)
    return os.path.join(tempfile.gettempdir(), f"torchinductor_{name}")


def _end_everything(child: int) -> None:
    """End a child, its group, and every process that any of them left behind."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while children.is_file() and (found := children.read_text().split()):
        for process in map(int, found):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process, 0)
