"""The parent's side of the worker: limits on time and memory, crashes, the smallest crashing case.

A crash takes the process and its search for a smaller case along. So the parent remembers the case
that was running, and asks the next process for the same check again: sampling is deterministic, the
search comes to that case, takes it as failed without running it, and goes on to smaller ones, of
which the next may crash.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from opsmith.checks.locate import Location
from opsmith.checks.protocol import Check
from opsmith.checks.repeat import command_of
from opsmith.checks.replay import Replay
from opsmith.checks.report import Row
from opsmith.checks.settings import Settings
from opsmith.checks.subject import Subject
from opsmith.checks.worker.memory import MemoryBound, bound_for
from opsmith.errors import OpsmithError

#: Starting imports torch, on a machine that may be busy.
_START_SECONDS = 120.0
#: How often, and for how long, a crash is followed to smaller cases.
_CRASHES, _CRASH_SECONDS = 20, 30.0
#: How often a process is looked at while it says nothing.
_LOOK_SECONDS = 0.05


_DEPENDS = (
    "The same call is right in a fresh process: what it gives depends on earlier calls. Does the "
    "kernel keep a result, count its calls, or read memory that it did not write?"
)
_INNOCENT = (
    "; called alone in a fresh process it does not crash: an earlier call may have damaged memory, "
    "and this case may be innocent"
)


class ElsewhereError(OpsmithError):
    """A worker cannot declare the operator as it is in the parent."""


@dataclass(frozen=True)
class _Running:
    """The case that a worker is busy with."""

    description: str = ""
    key: str = ""
    size: int = 0


@dataclass(frozen=True)
class _End:
    """How a process ended before it gave a row, in words.

    Attributes:
        how: the words.
        hung: whether it was ended for taking too long.
        again: whether the same check may end otherwise in another process.
    """

    how: str
    hung: bool = False
    again: bool = True


class _Garbled(Exception):
    """What came through the pipe of answers is none."""


class Worker:
    """The processes of `opsmith.checks.worker.process`, started when needed.

    Attributes:
        hung: whether the last check was ended because a case took too long.
    """

    def __init__(self) -> None:
        self.hung = False
        self._process: subprocess.Popen[bytes] | None = None
        self._child: int | None = None
        self._number = 0
        self._replay = Replay()
        self._answers = -1
        self._pending = b""
        self._folder = Path(tempfile.mkdtemp(prefix="opsmith-check-"))
        self._output = self._folder / "output"
        self._said = 0

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(
        self,
        check: Check,
        subject: Subject,
        location: Location,
        settings: Settings,
        time_limit: float | None = None,
    ) -> Row:
        """Run a check; a crash, a hang, or taking all memory is its failure.

        Args:
            check: what to run.
            subject: on what.
            location: where the operator is declared.
            settings: how thoroughly.
            time_limit: the seconds that one case may take, where not those of `settings`.

        Raises:
            ElsewhereError: the operator cannot be had in another process.
        """
        started = time.monotonic()
        limit = (time_limit or settings.time_limit) * check.time_limit
        crashed: dict[str, str] = {}
        worst: tuple[_Running, str] | None = None
        self.hung = False
        while True:
            request = {
                "path": sys.path,
                "location": location.to_json(),
                "check": check.name,
                "kernel": subject.kernel,
                "settings": asdict(settings),
                "crashed": crashed,
                "alone": "",
            }
            running, end = self._ask(request, limit)
            if isinstance(end, Row):
                if worst is None or end.status == "failed":
                    end = self._beside_fresh(check, end, request, limit)
                    return replace(end, seconds=time.monotonic() - started)
                # It crashed before and not now; that it did is what counts.
                return self._row(check, subject, settings, worst, started, " (not every time)")
            if worst is None or running.size <= worst[0].size:
                worst = (running, end.how)
            self.hung = end.hung
            late = time.monotonic() - started > _CRASH_SECONDS
            known = running.key in crashed
            if late or not end.again or not running.key or known or len(crashed) >= _CRASHES:
                note = ""
                if end.again and self._is_right_alone(request, limit, worst[0].key, crashed):
                    note = _INNOCENT
                return self._row(check, subject, settings, worst, started, note)
            crashed[running.key] = end.how

    def _beside_fresh(self, check: Check, row: Row, request: dict[str, Any], limit: float) -> Row:
        """A row, and whether its failing call is right where no other was made before it."""
        key, failed = self._replay.key, self._replay.failed
        crashed = key in request["crashed"]
        # What compiles makes more than one call, and takes long.
        if row.status != "failed" or not (crashed or key in failed) or check.time_limit > 1.0:
            return row
        if not self._is_right_alone(request, limit, key, failed):
            return row
        first, *said = row.message.split("\n")
        lines = [f"{first}{_INNOCENT}", *said] if crashed else [first, *said, _DEPENDS]
        return replace(row, message="\n".join(lines))

    def _is_right_alone(
        self, request: dict[str, Any], limit: float, key: str, failed: dict[str, str]
    ) -> bool:
        """Whether a case that failed does not fail in a process that runs no other."""
        self._end_child()
        others = {one: how for one, how in failed.items() if one != key}
        crashed = {**request["crashed"], **others}
        crashed.pop(key, None)
        _, end = self._ask({**request, "crashed": crashed, "alone": key}, limit)
        return isinstance(end, Row) and self._replay.right

    def _row(
        self,
        check: Check,
        subject: Subject,
        settings: Settings,
        worst: tuple[_Running, str],
        started: float,
        note: str = "",
    ) -> Row:
        running, end = worst
        before = "" if running.key or check.name == "build" else ", before the first case"
        first, *said = end.split("\n")
        return Row(
            operator=subject.operator.name,
            kernel=subject.kernel,
            check=check.name,
            status="failed",
            cases=1 if running.key else 0,
            seconds=time.monotonic() - started,
            message="\n".join([f"{first}{before}{note}", *said]),
            case=running.description,
            command=command_of(subject, check.name, settings),
            where=subject.implementation.where,
        )

    # --- the processes -----------------------------------------------------------------------

    def _ask(self, request: dict[str, Any], limit: float) -> tuple[_Running, Row | _End]:
        """Send a request; the row, or how the process ended, and what it was doing then."""
        running = _Running()
        try:
            not_ready = self._make_ready()
            if not_ready is not None:
                return running, not_ready
            assert self._process is not None and self._process.stdin is not None
            assert self._child is not None
            self._number += 1
            with contextlib.suppress(BrokenPipeError):
                line = json.dumps({"number": self._number, **request}) + "\n"
                self._process.stdin.write(line.encode())
                self._process.stdin.flush()
            bound = bound_for(self._child, 0)
            while True:
                message = self._read(limit, bound)
                if message is None:
                    return running, self._lost()
                if not message:
                    self._end_child()
                    if bound is not None and self._exceeded:
                        return running, _End(_too_large(bound))
                    return running, _End(f"did not return within {limit:.0f} s", True, False)
                if message["event"] == "ended" and message["pid"] == self._child:
                    self._child = None
                    return running, _End(self._how(message["code"]))
                if message.get("request") != self._number:
                    continue  # of a child that was ended meanwhile
                match message["event"]:
                    case "case":
                        size = message["size"]
                        running = _Running(message["description"], message["key"], size)
                        bound = bound_for(self._child, size)
                    case "elsewhere":
                        raise ElsewhereError(message["reason"])
                    case "row":
                        row = dict(message["row"])
                        self._replay = Replay(**message["replay"])
                        return running, Row(**{**row, "notes": tuple(row["notes"])})
        except (_Garbled, KeyError, TypeError, ValueError) as error:
            # The process that runs kernels can write whatever it likes.
            tail = self._tail()
            self.stop()
            how = f"the checking process gave an answer that is none ({error}){tail}"
            return running, _End(how, again=False)

    def _make_ready(self) -> _End | None:
        """Wait until a child takes requests; why there is none."""
        if self._process is None:
            self._start()
        while self._child is None:
            message = self._read(_START_SECONDS)
            if message is None:
                return self._lost()
            if not message:
                self.stop()
                return _End(
                    f"the checking process did not start within {_START_SECONDS:.0f} s: the "
                    f"machine may be too busy{self._tail()}",
                    again=False,
                )
            if message["event"] == "ready":
                self._child = int(message["pid"])
                self._said = self._output.stat().st_size
        return None

    def _start(self) -> None:
        reading, writing = os.pipe()
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            # Threads that wait must not take the cores from those that work.
            "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "passive"),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self._folder / "hypothesis"),
        }
        module = "opsmith.checks.worker.process"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(writing), str(self._folder)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=(writing,),
                env=environment,
                # Ctrl-C and a closed terminal are for this process, whose end ends the worker.
                start_new_session=True,
            )
        os.close(writing)
        self._answers, self._pending, self._said = reading, b"", 0

    def _end_child(self) -> None:
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child, signal.SIGKILL)
        self._child = None

    def stop(self) -> None:
        """End the processes, whatever they do."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
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
        self._folder.mkdir(exist_ok=True)

    def _read(self, seconds: float, bound: MemoryBound | None = None) -> dict[str, Any] | None:
        """The next message; an empty one after `seconds` of silence, `None` if there is no more.

        An empty one too as soon as the child exceeds `bound`.
        """
        deadline = time.monotonic() + seconds
        self._exceeded = False
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            if left <= 0:
                return {}
            if not select.select([self._answers], [], [], min(left, _LOOK_SECONDS))[0]:
                if bound is not None and self._child and bound.exceeded(self._child):
                    self._exceeded = True
                    return {}
                continue
            more = os.read(self._answers, 1 << 16)
            if not more:
                return None
            self._pending += more
        line, _, self._pending = self._pending.partition(b"\n")
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if not isinstance(message, dict) or "event" not in message:
            shown = line[:80].decode(errors="replace")
            raise _Garbled(f"{shown!r} came where messages are expected")
        return message

    def _lost(self) -> _End:
        """What to say where not even the process that only imports is there."""
        tail = self._tail()
        assert self._process is not None
        self.stop()
        return _End(f"the checking process is gone{tail}", again=False)

    def _how(self, code: int) -> str:
        """How a child ended, in words."""
        tail = self._tail()
        if code >= 0:
            return f"ended the process with exit code {code}{tail}"
        try:
            name = f" ({signal.Signals(-code).name})"
        except ValueError:
            name = ""
        if -code == signal.SIGKILL:
            name += ", as the system does where memory runs out"
        return f"crashed with signal {-code}{name}{tail}"

    def _tail(self) -> str:
        """The last that the child said, if anything."""
        try:
            with self._output.open("rb") as output:
                output.seek(self._said)
                text = output.read().decode(errors="replace")
        except OSError:
            return ""
        text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)
        lines = [line for line in text.splitlines() if line.strip()][-8:]
        return "; it said:\n" + "\n".join(f"  {line}" for line in lines) if lines else ""


def _too_large(bound: MemoryBound) -> str:
    return f"took more than {bound} of memory, and was ended before the machine ran out"
