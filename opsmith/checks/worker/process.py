"""The processes on the worker's side: a supervisor, and the child that checks run in.

Started by `Worker` as ``python -m opsmith.checks.worker.process FD FOLDER``. The supervisor imports
and forks; its child serves requests until it dies, and the next child takes over at once, without
importing PyTorch again. No tensor is computed before the fork, so there are no threads that a child
would miss.

The supervisor runs no code of the user's. So it sees whatever happens that its parent is gone, by
the end of the pipe that requests come through, and then ends its child and what that started, and
removes the folder that they wrote into.

Requests are lines of JSON on standard input, answers are lines of JSON on the file descriptor FD,
since kernels and references may print. Every answer carries its request's number.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


Serve = Callable[[int], None]
"""Answers all requests, on a file descriptor, in a child."""


def main() -> None:
    """Serve checks."""
    supervise(_import_all, _serve_all)


def supervise(prepare: Callable[[], None], serve: Serve) -> None:
    """Fork children that serve, until standard input ends.

    Args:
        prepare: imports what every child needs; starts no thread.
        serve: what a child does.
    """
    answers, folder = int(sys.argv[1]), Path(sys.argv[2])
    # A child's end is seen by the byte that its signal leaves here.
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    # What a kernel starts and leaves behind comes to this process, which ends it.
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    prepare()
    _keep_files_in(folder)
    while True:
        child = os.fork()
        if child == 0:
            _become_child()
            answer(answers, event="ready", pid=os.getpid())
            serve(answers)
            os._exit(0)
        if not _outlived(child, ended):
            _end_everything(child)
            shutil.rmtree(folder, ignore_errors=True)
            return
        _, status = os.waitpid(child, 0)
        _end_everything(child)
        answer(answers, event="ended", pid=child, code=os.waitstatus_to_exitcode(status))


def _import_all() -> None:
    from opsmith.checks import locate, protocol, runner

    protocol.all_checks()
    del locate, runner


def _keep_files_in(folder: Path) -> None:
    """Write temporary files where they are removed with the worker; what is cached stays cached."""
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", default_cache_dir())
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    os.environ["TMPDIR"] = str(temporary)
    tempfile.tempdir = None


def _outlived(child: int, ended: int) -> bool:
    """Wait until the child ends, or the parent; whether the parent is still there."""
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    poll.register(0, 0)  # its end only: what is in it is the child's
    while True:
        events = dict(poll.poll())
        if 0 in events:
            return False
        os.read(ended, 1 << 10)
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return True


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


def _prctl(option: int, value: int) -> None:
    """Ask Linux for something; elsewhere there is no such thing."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


# --- the child -----------------------------------------------------------------------------------


def answer(answers: int, **message: Any) -> None:
    """Send one line of JSON."""
    data = (json.dumps(message) + "\n").encode()
    while data:
        data = data[os.write(answers, data) :]


def _requests() -> Iterator[dict[str, Any]]:
    # Unbuffered: what this process has not asked for is there for the next one.
    pending = b""
    while True:
        while b"\n" not in pending:
            more = os.read(0, 1 << 16)
            if not more:
                return
            pending += more
        line, _, pending = pending.partition(b"\n")
        yield json.loads(line)


def _become_child() -> None:
    # A group of its own, to end it with whatever compiler it started.
    os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _go_first_where_memory_ends()


def _serve_all(answers: int) -> None:
    channels = _identities(answers)
    for request in _requests():
        sys.path[:] = request["path"]
        answer(answers, request=request["number"], **_serve(request, answers))
        if _identities(answers) != channels:
            break  # a kernel closed them: that is over with its row


def _go_first_where_memory_ends() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _identities(answers: int) -> list[tuple[int, int]]:
    """Which files the descriptors are that requests and answers go through."""
    found = []
    for descriptor in (0, answers):
        try:
            status = os.fstat(descriptor)
        except OSError:
            return []
        found.append((status.st_dev, status.st_ino))
    return found


def _serve(request: dict[str, Any], answers: int) -> dict[str, Any]:
    from opsmith.checks.locate import Location, NotLocatedError, obtain
    from opsmith.checks.protocol import all_checks
    from opsmith.checks.replay import Replay
    from opsmith.checks.runner import run_check
    from opsmith.checks.settings import Settings

    location = request["location"]
    modules = tuple((name, file) for name, file in location["modules"])
    try:
        operator = obtain(Location(location["name"], modules, location["fingerprint"]))
    except NotLocatedError as error:
        return {"event": "elsewhere", "reason": str(error)}
    check = next(one for one in all_checks() if one.name == request["check"])
    subject = next(one for one in check.subjects(operator) if one.kernel == request["kernel"])

    def announce(description: str, key: str, size: int) -> None:
        answer(
            answers,
            request=request["number"],
            event="case",
            description=description,
            key=key,
            size=size,
        )

    replay = Replay(request["alone"])
    settings = Settings(**request["settings"])
    row = run_check(check, subject, settings, announce, request["crashed"], replay)
    with contextlib.suppress(Exception):  # a kernel may have closed it
        sys.stdout.flush()
    return {"event": "row", "row": asdict(row), "replay": asdict(replay)}


if __name__ == "__main__":
    main()
