"""The parent's side of a supervised process: starting, listening, limits on time and memory."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from opsmith.checks.isolation.launch import Channel, Launch, Process
from opsmith.checks.isolation.memory import MemoryBound
from opsmith.kernels.build.scratch import make_again, make_scratch, remove

if TYPE_CHECKING:
    from typing_extensions import Self

#: Starting imports torch, on a machine that may be busy.
_START_SECONDS = 120.0
#: How often a process is looked at while it says nothing.
_LOOK_SECONDS = 0.05
#: What a pipe holds, where the system gives so much.
_PIPE_BYTES = 1 << 20
#: What is kept of what kernels print, and how much of that is looked at.
_OUTPUT_BYTES, _TAIL_BYTES = 64 << 20, 1 << 16


@dataclass(frozen=True)
class End:
    """How a process ended before it answered, in words.

    Attributes:
        how: the words.
        code: what kind of failure that is.
        hung: whether it was ended for taking too long.
        again: whether the same request may end otherwise in another process.
    """

    how: str
    code: str
    hung: bool = False
    again: bool = True


class GarbledError(Exception):
    """What came through the pipe of answers cannot be read."""


@dataclass(frozen=True)
class Started:
    """A supervisor that was started.

    Attributes:
        process: the supervisor.
        requests: the descriptor that requests are written to.
        answers: the descriptor that answers are read from.
        folder: where its files go.
    """

    process: Process
    requests: int
    answers: int
    folder: Path


def new_folder() -> Path:
    """A folder for a supervisor's files."""
    return make_scratch("check")


def started(launch: Launch, folder: Path) -> Started:
    """Start a supervisor."""
    theirs, requests = os.pipe()
    answers, to_answer = os.pipe()
    _widen(theirs)
    _widen(to_answer)
    os.set_blocking(requests, False)
    try:
        process = launch(Channel(theirs, to_answer, (requests, answers), folder, _output(folder)))
    finally:
        os.close(theirs)
        os.close(to_answer)
    return Started(process, requests, answers, folder)


def _output(folder: Path) -> Path:
    """The file for what is printed."""
    return folder / "output"


class Supervised:
    """A process that runs code which may do anything, and the supervisor that ends it.

    Args:
        launch: starts the supervisor, see `opsmith.checks.isolation.launch`.
        ahead: one that `launch` started already, for nobody else.
    """

    def __init__(self, launch: Launch, ahead: Started | None = None) -> None:
        self._launch = launch
        self._process: Process | None = None
        self._child: int | None = None
        self._ready = False
        self._requests = self._answers = -1
        self._pending = bytearray()
        self._exceeded = False
        self._folder = ahead.folder if ahead else new_folder()
        self._output = _output(self._folder)
        self._said = 0
        if ahead is not None:
            self._take_up(ahead)

    @property
    def folder(self) -> Path:
        """A folder that ends with the processes."""
        return self._folder

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def end(self) -> None:
        """End the processes for good, and remove their folder."""
        self.stop()
        remove(self._folder)

    def _send(self, data: bytes, seconds: float = _START_SECONDS) -> bool:
        """Send bytes; whether they were taken within `seconds`."""
        deadline = time.monotonic() + seconds
        left = memoryview(data)
        while left:
            if not select.select([], [self._requests], [], max(0.0, deadline - time.monotonic()))[
                1
            ]:
                return False
            try:
                left = left[os.write(self._requests, left) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                return True  # that it is gone is seen where its answer is read
        return True

    def _make_ready(self) -> End | None:
        """Wait until a child takes requests; why there is none."""
        if self._process is None:
            self._start()
        while self._child is None:
            message = self._read(_START_SECONDS)
            if message is None:
                return self._lost()
            if not message:
                self.stop()
                return End(
                    f"the checking process did not start within {_START_SECONDS:.0f} s: the "
                    f"machine may be too busy{self._tail()}",
                    "OPS-CHECK-LOST",
                    again=False,
                )
            if message["event"] == "ready":
                child = int(message["pid"])
                if not self._supervises(child):
                    raise GarbledError(f"process {child} is not one of the supervisor's")
                self._child, self._ready = child, True
                self._listen()
        return None

    def _supervises(self, process: int) -> bool:
        """Whether a process is a child of the supervisor: what is said of it may be invented."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        try:
            return str(process) in children.read_text().split()
        except OSError:
            return True  # gone meanwhile, or a system that does not say

    def _listen(self) -> None:
        """Take what the child says from now on as said by what runs now."""
        self._said = self._output.stat().st_size
        if self._said > _OUTPUT_BYTES:
            os.truncate(self._output, 0)
            self._said = 0

    def _start(self) -> None:
        self._take_up(started(self._launch, self._folder))

    def _take_up(self, ahead: Started) -> None:
        self._process = ahead.process
        self._requests, self._answers = ahead.requests, ahead.answers
        self._pending, self._said, self._ready = bytearray(), 0, False

    def _end_child(self) -> None:
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child, signal.SIGKILL)
        self._child = None

    def begin(self) -> None:
        """Start the processes now, so that they are there when they are needed."""
        if self._process is None:
            self._start()

    def interrupt(self) -> None:
        """End the processes, from another thread than the one that waits for their answer."""
        if self._process is None or self._requests < 0:
            return
        if not self._ready:
            self._process.kill()
        # The end of their input ends them; that thread closes what is there in its place.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._requests, inheritable=False)
        os.close(null)

    def stop(self) -> None:
        """End the processes, whatever they do."""
        if self._process is None:
            return
        requests, self._requests = self._requests, -1
        os.close(requests)
        if not self._ready:
            # It imports, and started nothing yet.
            self._process.kill()
        try:
            # At the end of its input it ends all that was started.
            self._process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._end_child()
            self._process.wait()
        self._child = None
        os.close(self._answers)
        self._process = None
        make_again(self._folder)

    def _read(self, seconds: float, bound: MemoryBound | None = None) -> dict[str, Any] | None:
        """The next message; an empty one after `seconds` of silence, `None` if there is no more.

        An empty one too as soon as `bound` is exceeded.
        """
        more = self._wait(lambda: b"\n" in self._pending, seconds, bound)
        if not more:
            return more if more is None else {}
        line = self._take_bytes(self._pending.index(b"\n") + 1)
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if not isinstance(message, dict) or "event" not in message:
            shown = line[:80].decode(errors="replace")
            raise GarbledError(f"{shown!r} came where messages are expected")
        return message

    def _read_bytes(self, count: int, seconds: float, bound: MemoryBound | None) -> bytes | None:
        """So many bytes that follow a message; `None` where they do not come.

        Raises:
            EOFError: there is no more.
        """
        more = self._wait(lambda: len(self._pending) >= count, seconds, bound)
        if more is None:
            raise EOFError
        if not more:
            return None
        return self._take_bytes(count)

    def _take_bytes(self, count: int) -> bytes:
        data = bytes(self._pending[:count])
        del self._pending[:count]
        return data

    def _wait(
        self, enough: Callable[[], bool], seconds: float, bound: MemoryBound | None
    ) -> bool | None:
        """Read until there is enough; `False` if it takes too much, `None` if there is no more."""
        deadline = time.monotonic() + seconds
        self._exceeded = False
        while not enough():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            if not select.select([self._answers], [], [], min(left, _LOOK_SECONDS))[0]:
                if bound is not None and bound.exceeded():
                    self._exceeded = True
                    return False
                continue
            more = os.read(self._answers, 1 << 20)
            if not more:
                return None
            self._pending += more
        return True

    def _lost(self) -> End:
        """What to say where not even the process that only imports is there."""
        tail = self._tail()
        assert self._process is not None
        self.stop()
        return End(f"the checking process is gone{tail}", "OPS-CHECK-LOST", again=False)

    def _how(self, code: int) -> End:
        """How a child ended."""
        tail = self._tail()
        if code >= 0:
            return End(f"ended the process with exit code {code}{tail}", "OPS-CALL-EXIT")
        try:
            name = f" ({signal.Signals(-code).name})"
        except ValueError:
            name = ""
        if -code == signal.SIGKILL:
            name += ", as the system does where memory runs out"
        return End(f"crashed with signal {-code}{name}{tail}", "OPS-CALL-CRASH")

    def _tail(self) -> str:
        """The last that the child said, if anything."""
        try:
            with self._output.open("rb") as output:
                output.seek(max(self._said, self._output.stat().st_size - _TAIL_BYTES))
                text = output.read().decode(errors="replace")
        except OSError:
            return ""
        text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)
        lines = [line for line in text.splitlines() if line.strip()][-8:]
        return "; it said:\n" + "\n".join(f"  {line}" for line in lines) if lines else ""


def _widen(pipe: int) -> None:
    """Let more into a pipe before its other end has to be read, where the system lets us."""
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
