"""The client of a supervised process: start it, read its answers, limit its time and memory."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opsmith.system.processes.launch import Channel, Launch, Process
from opsmith.system.processes.memory import MemoryBound
from opsmith.system.scratch import make_again, make_scratch, remove
from opsmith.system.stopwatch import spending

if TYPE_CHECKING:
    from typing_extensions import Self

#: Time limit in seconds for a start, which imports torch, on a machine that may be busy.
_START_SECONDS = 120.0
#: Seconds between two looks at the memory of a silent process.
_LOOK_SECONDS = 0.05
#: The requested capacity of a pipe.
_PIPE_BYTES = 1 << 20
#: Largest size of a message, without the bytes that follow it.
_LINE_BYTES = 16 << 20
#: Largest size of the file for printed text, and number of bytes read from its end.
_OUTPUT_BYTES, _TAIL_BYTES = 64 << 20, 1 << 16


@dataclass(frozen=True)
class End:
    """The end of a process that did not answer.

    Attributes:
        how: description of the end.
        code: the failure code.
        hung: whether the process was ended because it exceeded the time limit.
        again: whether the same request may succeed in another process.
    """

    how: str
    code: str
    hung: bool = False
    again: bool = True


class GarbledError(Exception):
    """An answer cannot be read."""


@dataclass(frozen=True)
class Started:
    """A supervisor that was started.

    Attributes:
        process: the supervisor.
        requests: the descriptor for writing requests.
        answers: the descriptor for reading answers.
        folder: the folder for its files.
        output: the descriptor of the file for printed text.
    """

    process: Process
    requests: int
    answers: int
    folder: Path
    output: int

    def close(self) -> None:
        """Close the descriptors."""
        for descriptor in (self.requests, self.answers, self.output):
            os.close(descriptor)


def new_folder() -> Path:
    """Create a folder for a supervisor's files."""
    return make_scratch("check")


def started(launch: Launch, folder: Path) -> Started:
    """Start a supervisor."""
    theirs, requests = os.pipe()
    answers, to_answer = os.pipe()
    _widen(theirs)
    _widen(to_answer)
    os.set_blocking(requests, False)
    output = new_output()
    try:
        process = launch(Channel(theirs, to_answer, (requests, answers), folder, output))
    finally:
        os.close(theirs)
        os.close(to_answer)
    return Started(process, requests, answers, folder, output)


def new_output() -> int:
    """Return a descriptor of a new file for printed text.

    The file has no name, so that nobody can put another in its place.
    """
    descriptor, name = tempfile.mkstemp()
    try:
        return os.open(name, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
    finally:
        os.close(descriptor)
        os.unlink(name)


class Supervised:
    """A process that runs untrusted code, and the supervisor that ends it.

    Args:
        launch: function that starts the supervisor, see `opsmith.system.processes.launch`.
        ahead: an unused supervisor that `launch` started already.
    """

    def __init__(self, launch: Launch, ahead: Started | None = None) -> None:
        self._launch = launch
        self._process: Process | None = None
        self._child: int | None = None
        #: The child's id where it runs, which may have ids of its own.
        self._inside: int | None = None
        self._ready = False
        self._requests = self._answers = -1
        self._pending = bytearray()
        self._exceeded = False
        self._folder = ahead.folder if ahead else self.new_folder()
        self._output = -1
        self._said = 0
        if ahead is not None:
            self._take_up(ahead)

    def new_folder(self) -> Path:
        """Create the folder for the processes' files."""
        return new_folder()

    @property
    def folder(self) -> Path:
        """Return a folder that is removed with the processes."""
        return self._folder

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def end(self) -> None:
        """End the processes for good, and remove their folder."""
        self.stop()
        remove(self._folder)

    def _send(self, data: bytes, seconds: float = _START_SECONDS) -> bool:
        """Send bytes, and return whether the process read them within `seconds`."""
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
                return True  # reading the answer detects the end of the process
        return True

    @spending("starting")
    def _make_ready(self) -> End | None:
        """Wait until a child is ready; return the reason if there is none, else `None`."""
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
                inside = int(message["pid"])
                child = self._process.outside(inside) if self._process is not None else None
                if child is None:
                    raise GarbledError(f"process {inside} is not one of the supervisor's")
                self._child, self._inside, self._ready = child, inside, True
                self._listen()
        return None

    def _listen(self) -> None:
        """Attribute text that is printed from now on to the current child."""
        self._said = os.fstat(self._output).st_size
        if self._said > _OUTPUT_BYTES:
            os.truncate(self._output, 0)
            self._said = 0

    def _start(self) -> None:
        self._take_up(started(self._launch, self._folder))

    def _take_up(self, ahead: Started) -> None:
        self._process = ahead.process
        self._requests, self._answers = ahead.requests, ahead.answers
        self._output = ahead.output
        self._pending, self._said, self._ready = bytearray(), 0, False

    def _end_child(self) -> None:
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child, signal.SIGKILL)
        self._child = None

    def begin(self) -> None:
        """Start the processes now, before they are needed."""
        if self._process is None:
            self._start()

    def interrupt(self) -> None:
        """End the processes from another thread than the one that waits for their answer."""
        if self._process is None or self._requests < 0:
            return
        if not self._ready:
            self._process.kill()
        # Both processes end at the end of their input. The waiting thread later closes the
        # descriptor that replaces it.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._requests, inheritable=False)
        os.close(null)

    def stop(self) -> None:
        """End the processes, even if they do not react."""
        if self._process is None:
            return
        requests, self._requests = self._requests, -1
        os.close(requests)
        if not self._ready:
            # The supervisor is still importing, and has started no other process yet.
            self._process.kill()
        try:
            # At the end of its input, the supervisor ends all processes.
            self._process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._end_child()
            self._process.wait()
        self._child = None
        os.close(self._answers)
        os.close(self._output)
        self._output = -1
        self._process = None
        make_again(self._folder)

    def _read(self, seconds: float, bound: MemoryBound | None = None) -> dict[str, Any] | None:
        """Return the next message; `None` if the answers have ended.

        Return an empty message after `seconds` of silence, or as soon as `bound` is exceeded.
        """
        more = self._wait(self._has_line, seconds, bound)
        if not more:
            return more if more is None else {}
        line = self._take_bytes(self._pending.index(b"\n") + 1)
        try:
            message = json.loads(line, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict) or "event" not in message:
            shown = line[:80].decode(errors="replace")
            raise GarbledError(f"{shown!r} came where messages are expected")
        return message

    def _has_line(self) -> bool:
        if b"\n" in self._pending:
            return True
        if len(self._pending) > _LINE_BYTES:
            raise GarbledError("a message without end came")
        return False

    def _read_bytes(self, count: int, seconds: float, bound: MemoryBound | None) -> bytes | None:
        """Return `count` bytes that follow a message; `None` if they do not come in time.

        Raises:
            EOFError: the answers have ended.
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
        """Read until `enough()` is true, and return `True`.

        Return `False` if the time or memory limit is exceeded, `None` if the answers have ended.
        """
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
        """Describe the end of a supervisor that is gone."""
        tail = self._tail()
        assert self._process is not None
        process = self._process
        self.stop()
        how, code = process.failure()
        if how:
            return End(f"{how}{tail}", code, again=False)
        return End(f"the checking process is gone{tail}", "OPS-CHECK-LOST", again=False)

    def _how(self, code: int) -> End:
        """Describe the end of a child by its exit code, or by the negative number of a signal."""
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
        """Return the last lines that the child printed, as the end of a message."""
        try:
            size = os.fstat(self._output).st_size
            data = os.pread(self._output, _TAIL_BYTES, max(self._said, size - _TAIL_BYTES, 0))
        except OSError:
            return ""
        text = printable(re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", data.decode(errors="replace")))
        lines = [line for line in text.splitlines() if line.strip()][-8:]
        return "; it said:\n" + "\n".join(f"  {line}" for line in lines) if lines else ""


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def printable(text: str, most: int = 1 << 16) -> str:
    """Return text that every terminal and file can show: escape all but letters and signs."""
    return "".join(
        one if one.isprintable() or one in "\n\t" else one.encode("unicode_escape").decode()
        for one in text[:most]
    )


def _widen(pipe: int) -> None:
    """Enlarge a pipe, if the system allows it, so that writing blocks later."""
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
