"""Start processes in sandboxes as forks of a process that has imported their module."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence

from opsmith.errors import OpsmithError
from opsmith.system.processes.sandbox import fork_server
from opsmith.system.processes.sandbox.policy import Box, Sandboxed

#: Time limit in seconds for the imports, on a machine that may be busy.
_START_SECONDS = 120.0
_TAIL_BYTES = 2000
_guard = threading.Lock()
_kept: ForkServer | None = None


class ForkServerError(OpsmithError):
    """Raised if the process that sandboxed processes are forked from does not answer."""


class ForkServer:
    """A process that has imported a module, and runs it in forks that enter sandboxes.

    It ends with the process that started it.

    Args:
        module: name of the module, which gets the arguments ``FD FOLDER``.
        environment: the environment variables of all forks.
    """

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        self.module, self.environment = module, dict(environment)
        self.started_by = os.getpid()
        self._requests, theirs = socket.socketpair()
        self._requests.settimeout(_START_SECONDS)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", fork_server.__name__, str(theirs.fileno()), module],
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs.fileno(),),
                env=self.environment,
                cwd="/",
                start_new_session=True,
            )

    def running(self) -> bool:
        """Return whether the process has not ended."""
        return self._process.poll() is None

    def ask(self, descriptors: Sequence[int]) -> tuple[int, int]:
        """Send descriptors; return the id of the new fork, and a descriptor of the process.

        Raises:
            ForkServerError: the process has ended, or does not answer in time.
        """
        with contextlib.suppress(OSError), _guard:
            socket.send_fds(self._requests, [b"+"], descriptors)
            answer, received, _, _ = socket.recv_fds(self._requests, 32, 1)
            if answer:
                return int(answer), received[0]
        self._process.kill()
        self._process.wait()
        self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - _TAIL_BYTES))
        said = self._said.read().decode(errors="replace").strip()
        raise ForkServerError(
            f"the process that imports {self.module} ended, or took longer than "
            f"{_START_SECONDS:.0f} s" + (f"; it said:\n{said}" if said else "")
        )

    def end(self) -> None:
        """End the process, and with it all forks."""
        self._requests.close()
        self._process.kill()
        self._process.wait()
        self._said.close()


class ForkedIntoSandbox(Sandboxed):
    """A fork in a sandbox that implements `opsmith.system.processes.launch.Process`.

    Args:
        server: the process to fork.
        box: the sandbox; it uses the machine's namespaces.
        descriptors: file descriptors that the fork inherits.
        stdin: the fork's standard input.
        stdout: the fork's standard output, also for errors.
    """

    def __init__(
        self, server: ForkServer, box: Box, descriptors: Sequence[int], stdin: int, stdout: int
    ) -> None:
        super().__init__(box, [server.module], server.environment)
        try:
            self.pid, self._handle = server.ask(
                [self._given, self._tell, stdin, stdout, *descriptors]
            )
            weakref.finalize(self, os.close, self._handle)
            self._hand_over()
        finally:
            self._close()

    def wait(self, timeout: float | None = None) -> None:
        """Wait for its end; raise `subprocess.TimeoutExpired` after `timeout` seconds."""
        if not select.select([self._handle], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("a fork", timeout or 0.0)

    def _wait_for_end(self) -> None:
        self.wait()

    def kill(self) -> None:
        """Kill the process that keeps a way into the sandbox, and with it all in the sandbox."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)


def kept_server(module: str, environment: Mapping[str, str]) -> ForkServer:
    """Return this process's server for a module; start it if it does not run yet.

    A server for another module, or with other variables, is ended.
    """
    global _kept
    with _guard:
        own = _kept if _kept is not None and _kept.started_by == os.getpid() else None
        if own is not None and own.running():
            if (own.module, own.environment) == (module, dict(environment)):
                return own
            own.end()
        _kept = ForkServer(module, environment)
        return _kept
