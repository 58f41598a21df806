"""The supervisor: fork children that run untrusted code, and end all that they start.

A supervisor runs no kernel, so it always notices the end of its parent, by the end of the pipe for
requests. It then ends its child and all processes that the child started, and removes their folder.

Requests come on standard input. Answers are lines of JSON on another file descriptor, since kernels
and references may print.
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
from typing import NoReturn

from opsmith.system.processes.child_main import prctl, signal_at_parents_end
from opsmith.system.watchdog import be_supervised

_PR_SET_CHILD_SUBREAPER = 36

Serve = Callable[[int], None]
"""A function that runs in a child, and answers all requests on a file descriptor."""


def supervise(
    answers: int, folder: Path, prepare: Callable[[], None] | None, serve: Serve
) -> NoReturn:
    """Fork children that serve, until standard input ends; then end this process.

    Args:
        answers: the file descriptor for answers.
        folder: the folder for temporary files, removed at the end.
        prepare: function that imports the modules for every child, and starts no thread; `None` in
            a fork, which has imported them already.
        serve: function that a child runs.
    """
    children = Children()
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if prepare is not None:
        prepare()
    _keep_files_in(folder)
    # Freeze all present objects: the garbage collector of a child would write to them, and so make
    # the system copy their memory.
    gc.freeze()
    if prepare is not None:
        gc.enable()  # disabled by `child_main`
        # From here on, the end of standard input shows that the parent ended, and this process ends
        # its children itself.
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
            # The parent may be waiting, and a regular exit of Python takes long.
            os._exit(0)
        answer(answers, event="ended", pid=child, code=code)


class Children:
    """The children of this process, one at a time; no process that a child started outlives it."""

    def __init__(self) -> None:
        # The signal of a child's end writes a byte into this pipe.
        self._ended, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        # Processes that a kernel leaves behind become children of this process, which ends them.
        prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def fork(self, work: Callable[[], None]) -> int:
        """Run a function in a forked child, and return the child's process id."""
        _flush()
        child = os.fork()
        if child == 0:
            leave_after(lambda: self._begin(work))
        return child

    def _begin(self, work: Callable[[], None]) -> None:
        # The child gets its own process group, to be ended together with compilers it started.
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(self._ended)
        os.close(self._wake)
        signal_at_parents_end(signal.SIGKILL)
        be_supervised()
        # Make the system end this process first if memory runs out.
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000")
        work()

    def outlive(self, child: int) -> int | None:
        """Wait until a child ends, and end the processes that it started.

        Returns:
            The child's exit code, or the negative number of the signal that ended it; `None` if
            the parent ended first.
        """
        poll = select.poll()
        poll.register(self._ended, select.POLLIN)
        poll.register(0, 0)  # report only its end, since the child reads the requests
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
    """Run a function, and end this process without Python's usual cleanup.

    The process was forked: the callers on the stack and the pending cleanup belong to its parent.
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


def answer(answers: int, **message: object) -> None:
    """Send one line of JSON, which no bytes follow unless it says how many."""
    write_all(answers, (json.dumps({"bytes": 0, **message}) + "\n").encode())


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _flush() -> None:
    # A kernel may have closed the streams.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def _keep_files_in(folder: Path) -> None:
    """Redirect temporary files to the worker's folder, but keep Inductor's cache where it is."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", _inductor_cache())
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    os.environ["TMPDIR"] = str(temporary)
    tempfile.tempdir = None


def _inductor_cache() -> str:
    """Return the folder in which Inductor keeps its cache by default.

    Importing Inductor's own function for this takes longer than running a check.
    """
    try:
        user = getpass.getuser()
    except (KeyError, ModuleNotFoundError, OSError):
        user = f"uid_{os.getuid()}"
    name = re.sub(r'[\\/:*?"<>|]', "_", user)
    return os.path.join(tempfile.gettempdir(), f"torchinductor_{name}")


def _end_everything(child: int) -> None:
    """End a child, its process group, and every process that any of them left behind."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while children.is_file() and (found := children.read_text().split()):
        for process in map(int, found):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process, 0)
