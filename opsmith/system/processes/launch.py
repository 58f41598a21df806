"""Two ways to start a supervisor: in a new Python process, or as a fork of this process."""

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

from opsmith.system.files import cache_folder
from opsmith.system.processes import child_main
from opsmith.system.processes.sandbox.fork_client import ForkedIntoSandbox, kept_server
from opsmith.system.processes.sandbox.policy import Box, Boxed
from opsmith.system.processes.supervisor import Serve, leave_after, supervise

#: Seconds between two looks at a fork while waiting for its end.
_LOOK_SECONDS = 0.001
#: The descriptors of this process that lead to processes it started. A fork closes them: a process
#: sees the end of this one only if no other holds the pipe to it.
LEADING: list[int] = []


class Process(Protocol):
    """A supervisor process: the part of `subprocess.Popen` that is used."""

    pid: int

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for its end; raise `subprocess.TimeoutExpired` after `timeout` seconds."""

    def kill(self) -> None:
        """Kill the process."""

    def outside(self, process: int) -> int | None:
        """Return the id by which this process knows a child of that process, or `None`."""
        # The answer may be forged.
        try:
            children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        except OSError:
            return process  # the process has ended, or the system is not Linux
        return process if str(process) in children else None

    def failure(self) -> tuple[str, str]:
        """Wait for the process to end; return the sandbox's report on it, and the failure code."""
        return "", ""


@dataclass(frozen=True)
class Channel:
    """The pipes and files between a supervisor and the process that starts it.

    Attributes:
        requests: the descriptor from which the supervisor reads requests.
        answers: the descriptor to which the supervisor writes answers.
        folder: the folder for temporary files.
        output: the descriptor of a file without a name, for printed text.
    """

    requests: int
    answers: int
    folder: Path
    output: int


def surroundings() -> tuple[object, ...]:
    """Return the state that a process started now inherits, beginning with this process's id."""
    # pytest sets this variable anew for each test.
    variables = {key: value for key, value in os.environ.items() if key != "PYTEST_CURRENT_TEST"}
    # Each request contains the folders of modules; a process finds packages when it starts.
    return os.getpid(), variables, frozenset(filter(_has_packages, sys.path))


def _has_packages(folder: str) -> bool:
    try:
        return any(name.endswith((".dist-info", ".egg-info")) for name in os.listdir(folder or "."))
    except OSError:
        return os.path.isfile(folder)  # a file of modules


Launch = Callable[[Channel], Process]
"""A function that starts a supervisor."""


def python(
    module: str,
    environment: Callable[[Path], Mapping[str, str]] | None = None,
    box: Callable[[Path], Box] | None = None,
) -> Launch:
    """Return a function that runs a module in a new Python, with the arguments ``FD FOLDER``.

    In a sandbox with namespaces, the Python is a fork of a process that has imported the module.

    Args:
        module: name of the module, which calls `supervise`.
        environment: function that returns the environment variables of the process, given the
            folder for its files; by default those of this process, and `faster`.
        box: function that returns the sandbox for the process, given the folder for its files; by
            default there is none.
    """

    def launch(channel: Channel) -> Process:
        variables = environment(channel.folder) if environment else _variables()
        command = [sys.executable, child_main.__file__, module]
        command += [str(channel.answers), str(channel.folder)]
        if box is not None:
            boxed = box(channel.folder)
            if boxed.namespaces:
                return ForkedIntoSandbox(
                    kept_server(module, variables),
                    boxed,
                    (channel.answers,),
                    channel.requests,
                    channel.output,
                )
            return Boxed(
                boxed,
                command,
                variables,
                descriptors=(channel.answers,),
                stdin=channel.requests,
                stdout=channel.output,
            )
        return _Python(
            command,
            stdin=channel.requests,
            stdout=channel.output,
            stderr=subprocess.STDOUT,
            pass_fds=(channel.answers,),
            env=variables,
            # Only this process handles Ctrl-C and a closed terminal; its end ends the worker.
            start_new_session=True,
        )

    return launch


def _variables() -> Mapping[str, str]:
    """Return the environment variables of this process, and some that make checks faster."""
    paths = os.pathsep.join(path for path in sys.path if path)
    return {**os.environ, "PYTHONPATH": paths, **faster()}


def faster() -> Mapping[str, str]:
    """Return the variables that make checks faster, if they are set before torch is imported."""
    return {
        # Waiting threads must not take the cores from working ones.
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "passive"),
        # With symbolic sizes, filling the cache runs fake kernels twice, and hits are rare.
        "TORCH_FAKE_TENSOR_DISPATCH_CACHE": os.environ.get("TORCH_FAKE_TENSOR_DISPATCH_CACHE", "0"),
        # PyTorch computes sizes with SymPy, which by default caches only 1000 results of each
        # function.
        "SYMPY_CACHE_SIZE": os.environ.get("SYMPY_CACHE_SIZE", "20000"),
        # Hypothesis keeps there which constants a source has.
        "HYPOTHESIS_STORAGE_DIRECTORY": str(cache_folder() / "hypothesis"),
    }


class _Python(subprocess.Popen[bytes], Process):
    """A new Python."""


def fork(serve: Serve, hide: tuple[int, ...] = (), *, session: bool = False) -> Launch:
    """Return a function that starts a supervisor as a fork of this process, with its imports.

    The process must not have computed anything yet: threads are not copied by a fork, and the fork
    would wait for the computing threads for ever.

    Args:
        serve: function that the supervisor's children run.
        hide: further descriptors of this process that the fork closes, to hide them from kernels.
        session: whether the fork gets a session of its own, so that Ctrl-C does not reach it.
    """

    def launch(channel: Channel) -> Process:
        def work() -> None:
            if session:
                os.setsid()
            os.dup2(channel.requests, 0)
            os.dup2(channel.output, 1)
            os.dup2(channel.output, 2)
            for descriptor in (channel.requests, *LEADING, *hide):
                os.close(descriptor)
            LEADING.clear()
            supervise(channel.answers, channel.folder, None, serve)

        process = os.fork()
        if process == 0:
            leave_after(work)
        return _Fork(process)

    return launch


class _Fork(Process):
    """A fork of this process."""

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
