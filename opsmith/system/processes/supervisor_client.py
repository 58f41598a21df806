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
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from opsmith.system.processes.launch import LEADING, Channel, Launch, Process
from opsmith.system.processes.memory import MemoryBound
from opsmith.system.scratch import make_again, make_scratch, remove
from opsmith.system.stopwatch import spending
from opsmith.untyped import Json

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


class EndError(Exception):
    """Raised if a process ends, or is ended, in place of an answer.

    Attributes:
        how: description of the end.
        hung: whether the process was ended because it exceeded the time limit.
        again: whether the same request may succeed in another process.
    """

    def __init__(self, how: str, code: str, hung: bool = False, again: bool = True) -> None:
        super().__init__(how)
        self.how, self.code, self.hung, self.again = how, code, hung, again


class GarbledError(Exception):
    """An answer cannot be read."""


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
    """A process that runs untrusted code and answers requests, and the supervisor that ends it.

    A request is a line of JSON, followed by bytes; so is an answer, see `server`. What the process
    sends is untrusted.

    Args:
        launch: function that starts the supervisor, see `opsmith.system.processes.launch`.
        ahead: one that was begun and not used, whose processes this takes; nobody else keeps it.
    """

    #: Name of the process in messages.
    who = "the checking process"
    #: Failure code for an answer that cannot be read.
    garbled = "OPS-CHECK-LOST"
    #: Whether answers to other requests may come, which are passed over.
    passes_over = False
    #: Largest number of bytes that follow an answer.
    most_bytes = 1 << 30

    def __init__(self, launch: Launch, ahead: Supervised | None = None) -> None:
        if ahead is not None:
            vars(self).update(vars(ahead))
        self._launch = launch
        if ahead is not None:
            return
        self._process: Process | None = None
        self._child: int | None = None
        #: The child's id where it runs, which may have ids of its own.
        self._inside: int | None = None
        self._ready = False
        self._requests = self._answers = -1
        self._pending = bytearray()
        self._number = 0
        self._folder = self.new_folder()
        self._output = -1
        self._said = 0

    def new_folder(self) -> Path:
        """Create the folder for the processes' files."""
        return make_scratch("check")

    @property
    def folder(self) -> Path:
        """Return a folder that is removed with the processes."""
        return self._folder

    @property
    def descriptors(self) -> tuple[int, int, int]:
        """Return the descriptors of the pipes for requests and answers, and of printed text."""
        return self._requests, self._answers, self._output

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def end(self) -> None:
        """End the processes for good, and remove their folder."""
        self.stop()
        remove(self._folder)

    def ask(
        self,
        request: Mapping[str, object],
        payload: Sequence[bytes] = (),
        seconds: float = _START_SECONDS,
        bound: MemoryBound | None = None,
    ) -> tuple[dict[str, Json], bytes]:
        """Send a request, and return the answer and the bytes that follow it.

        Args:
            payload: the bytes that follow it.
            seconds: time limit for sending the request, and for each part of the answer.
            bound: the limit for the memory of the process.

        Raises:
            EndError: no answer came; the process was ended if it did not end by itself.
        """
        self.tell(request, payload, seconds)
        return self.receive(seconds, bound)

    def tell(
        self,
        request: Mapping[str, object],
        payload: Sequence[bytes] = (),
        seconds: float = _START_SECONDS,
    ) -> None:
        """Send a request; see `ask`."""
        self.make_ready()
        self._number += 1
        head = {"number": self._number, "bytes": sum(map(len, payload)), **request}
        self.send(b"".join([(json.dumps(head) + "\n").encode(), *payload]), seconds)

    def send(self, data: bytes, seconds: float) -> None:
        """Send bytes; raise `EndError` if the process does not read them within `seconds`."""
        deadline = time.monotonic() + seconds
        left = memoryview(data)
        while left:
            patience = max(0.0, deadline - time.monotonic())
            if not select.select([], [self._requests], [], patience)[1]:
                raise self._late(seconds)
            try:
                left = left[os.write(self._requests, left) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                return  # reading the answer detects the end of the process

    def receive(
        self, seconds: float, bound: MemoryBound | None = None
    ) -> tuple[dict[str, Json], bytes]:
        """Return the next answer to the last request; see `ask`."""
        with self.reading():
            while True:
                message = self._read(seconds, bound)
                if message["event"] == "ended" and message.get("pid") == self._inside:
                    end = self._how(int(message["code"]))
                    self._child = None
                    self.forget_child()
                    raise end
                if message.get("request") == self._number:
                    break
                if not self.passes_over:
                    raise GarbledError("it is an answer to something else")
            count = message.get("bytes")
            if type(count) is not int or not 0 <= count <= self.most_bytes:
                raise GarbledError("it does not say how many bytes follow")
            self._wait(lambda: len(self._pending) >= count, seconds, bound)
            return message, self._take_bytes(count)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """End the process, and raise `EndError`, if what it sent cannot be read in the block."""
        try:
            yield
        except (GarbledError, KeyError, TypeError, ValueError, ArithmeticError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            how = f"{self.who} gave an answer that cannot be read ({printable(what)}){self._tail()}"
            self.stop()
            raise EndError(how, self.garbled, again=False) from error

    def forget_child(self) -> None:
        """Forget what a child knew that has ended; subclasses may override this."""

    @spending("starting")
    def make_ready(self) -> None:
        """Wait until a child is ready; raise `EndError` if there is none."""
        self.begin()
        with self.reading():
            while self._child is None:
                message = self._read(_START_SECONDS)
                if message["event"] == "ready":
                    inside = int(message["pid"])
                    child = self._process.outside(inside) if self._process is not None else None
                    if child is None:
                        raise GarbledError(f"process {inside} is not one of the supervisor's")
                    self._child, self._inside, self._ready = child, inside, True
                    self._listen()

    def _listen(self) -> None:
        """Attribute text that is printed from now on to the current child."""
        self._said = os.fstat(self._output).st_size
        if self._said > _OUTPUT_BYTES:
            os.truncate(self._output, 0)
            self._said = 0

    def _start(self) -> None:
        theirs, self._requests = os.pipe()
        self._answers, to_answer = os.pipe()
        _widen(theirs)
        _widen(to_answer)
        os.set_blocking(self._requests, False)
        self._output = new_output()
        self._pending, self._said, self._ready = bytearray(), 0, False
        LEADING.extend(self.descriptors)
        try:
            self._process = self._launch(Channel(theirs, to_answer, self._folder, self._output))
        finally:
            os.close(theirs)
            os.close(to_answer)

    def _end_child(self) -> None:
        """End the child, if it has not ended by itself; the supervisor starts another one."""
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child, signal.SIGKILL)
        self._child = None
        self.forget_child()

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
        """End the processes, even if they do not react; the next request starts others."""
        self.forget_child()
        if self._process is None:
            return
        requests, self._requests = self._requests, -1
        LEADING.remove(requests)
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
        for descriptor in (self._answers, self._output):
            LEADING.remove(descriptor)
            os.close(descriptor)
        self._output = -1
        self._process = None
        make_again(self._folder)

    def _read(self, seconds: float, bound: MemoryBound | None = None) -> dict[str, Json]:
        """Return the next message; raise `EndError` as `_wait` does."""
        self._wait(self._has_line, seconds, bound)
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

    def _take_bytes(self, count: int) -> bytes:
        data = bytes(self._pending[:count])
        del self._pending[:count]
        return data

    def _wait(self, enough: Callable[[], bool], seconds: float, bound: MemoryBound | None) -> None:
        """Read until `enough()` is true."""
        deadline = time.monotonic() + seconds
        while not enough():
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._late(seconds)
            if not select.select([self._answers], [], [], min(left, _LOOK_SECONDS))[0]:
                if bound is not None and bound.exceeded():
                    self._end_child()
                    raise EndError(bound.excess, "OPS-CALL-MEMORY")
                continue
            more = os.read(self._answers, 1 << 20)
            if not more:
                raise self._lost()
            self._pending += more

    def _late(self, seconds: float) -> EndError:
        """End a process that exceeded the time limit."""
        if self._child is not None:
            self._end_child()
            how = f"did not return within {seconds:.0f} s"
            return EndError(how, "OPS-CALL-HANG", hung=True, again=False)
        tail = self._tail()
        self.stop()
        return EndError(
            f"the checking process did not start within {seconds:.0f} s: the machine may be too "
            f"busy{tail}",
            "OPS-CHECK-LOST",
            again=False,
        )

    def _lost(self) -> EndError:
        """Describe the end of a supervisor that is gone."""
        tail = self._tail()
        assert self._process is not None
        process = self._process
        self.stop()
        how, code = process.failure()
        if not how:
            how, code = "the checking process is gone", "OPS-CHECK-LOST"
        return EndError(f"{how}{tail}", code, again=False)

    def _how(self, code: int) -> EndError:
        """Describe the end of a child by its exit code, or by the negative number of a signal."""
        tail = self._tail()
        if code >= 0:
            return EndError(f"ended the process with exit code {code}{tail}", "OPS-CALL-EXIT")
        try:
            name = f" ({signal.Signals(-code).name})"
        except ValueError:
            name = ""
        if -code == signal.SIGKILL:
            name += ", as the system does where memory runs out"
        return EndError(f"crashed with signal {-code}{name}{tail}", "OPS-CALL-CRASH")

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
    """Return text that every terminal and file can show: escape all but letters and signs.

    Of more characters than `most`, the first and the last are shown, which say where it happened.
    """
    left_out = len(text) - most
    if left_out > 0:
        text = f"{text[: most // 2]}\n… {left_out} characters …\n{text[-(most // 2) :]}"
    return "".join(
        one if one.isprintable() or one in "\n\t" else one.encode("unicode_escape").decode()
        for one in text
    )


def _widen(pipe: int) -> None:
    """Enlarge a pipe, if the system allows it, so that writing blocks later."""
    with contextlib.suppress(OSError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
