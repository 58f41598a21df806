"""Two ways to start a supervisor: in a Python of its own, or as a fork of this process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from opsmith.checks.isolation import child_main
from opsmith.checks.isolation.supervisor import Serve, leave_after, supervise

#: How often a fork is looked at while its end is waited for.
_LOOK_SECONDS = 0.001


class Process(Protocol):
    """A supervisor that was started; what `subprocess.Popen` has of it."""

    pid: int

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it ends; raises `subprocess.TimeoutExpired` after `timeout` seconds."""

    def kill(self) -> None:
        """End it."""


@dataclass(frozen=True)
class Channel:
    """What goes between a supervisor and who starts it.

    Attributes:
        requests: the descriptor that the supervisor reads requests from.
        answers: the descriptor that answers go to.
        others: the other ends of both.
        folder: where temporary files go.
        output: the file for what is printed.
    """

    requests: int
    answers: int
    others: tuple[int, int]
    folder: Path
    output: Path


def surroundings() -> tuple[object, ...]:
    """What a process that is started now finds; first of all, who starts it."""
    # pytest notes there which test it runs.
    variables = {key: value for key, value in os.environ.items() if key != "PYTEST_CURRENT_TEST"}
    # In which order, each request says.
    return os.getpid(), variables, frozenset(sys.path)


Launch = Callable[[Channel], Process]
"""Starts a supervisor."""


def python(module: str, environment: Mapping[str, str] | None = None) -> Launch:
    """Run a module in a Python of its own, with the arguments ``FD FOLDER``.

    Args:
        module: what calls `supervise`.
        environment: the environment variables of the process; those of this one by default.
    """

    def launch(channel: Channel) -> Process:
        cache = os.environ.get("TORCH_FAKE_TENSOR_DISPATCH_CACHE", "0")
        variables = {
            **(os.environ if environment is None else environment),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            # Threads that wait must not take the cores from those that work.
            "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "passive"),
            # With symbolic sizes filling it runs a fake kernel twice, and little is found there.
            "TORCH_FAKE_TENSOR_DISPATCH_CACHE": cache,
            # PyTorch computes sizes by SymPy, which forgets all but 1000 results of each function.
            "SYMPY_CACHE_SIZE": os.environ.get("SYMPY_CACHE_SIZE", "20000"),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(channel.folder / "hypothesis"),
        }
        with channel.output.open("ab") as output:
            return subprocess.Popen(
                [
                    sys.executable,
                    child_main.__file__,
                    module,
                    str(channel.answers),
                    str(channel.folder),
                ],
                stdin=channel.requests,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=(channel.answers,),
                env=variables,
                # Ctrl-C and a closed terminal are for this process, whose end ends the worker.
                start_new_session=True,
            )

    return launch


def fork(serve: Serve, hide: tuple[int, ...] = ()) -> Launch:
    """Go on in a copy of this process, which imported all there is to import.

    Only for a process that has computed nothing yet: threads are not copied, and who waits for
    them waits for ever.

    Args:
        serve: what the supervisor's children do.
        hide: descriptors of this process that no kernel is to find.
    """

    def launch(channel: Channel) -> Process:
        def work() -> None:
            os.dup2(channel.requests, 0)
            with channel.output.open("ab") as output:
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
            for descriptor in (channel.requests, *channel.others, *hide):
                os.close(descriptor)
            supervise(channel.answers, channel.folder, None, serve)

        process = os.fork()
        if process == 0:
            leave_after(work)
        return _Fork(process)

    return launch


class _Fork:
    """A fork of this process, as `Process` has it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            found, status = os.waitpid(self.pid, 0 if deadline is None else os.WNOHANG)
            if found:
                return os.waitstatus_to_exitcode(status)
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a fork", timeout or 0.0)
            time.sleep(_LOOK_SECONDS)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
