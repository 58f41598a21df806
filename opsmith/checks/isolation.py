"""The parent's side of the worker process: time limits, crashes, and the smallest crashing case.

A crash takes the process and its search for a smaller case along. So the parent remembers the case
that was running, and asks the next process for the same check again: sampling is deterministic, the
search comes to that case, takes it as failed without running it, and goes on to smaller ones, of
which the next may crash.
"""

from __future__ import annotations

import contextlib
import json
import os
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

from opsmith.checks.execute import command_of
from opsmith.checks.locate import Location
from opsmith.checks.protocol import Check
from opsmith.checks.report import Row
from opsmith.checks.subject import Subject
from opsmith.checks.trial import Settings
from opsmith.errors import OpsmithError

#: Starting imports torch, on a machine that may be busy.
_START_SECONDS = 120.0
#: How often, and for how long, a crash is followed to smaller cases.
_CRASHES, _CRASH_SECONDS = 20, 30.0


class ElsewhereError(OpsmithError):
    """A worker cannot declare the operator as it is in the parent."""


@dataclass(frozen=True)
class _Running:
    """The case that a worker is busy with."""

    description: str = ""
    key: str = ""
    size: int = 0


class Worker:
    """The processes of `opsmith.checks.worker`, started when needed.

    Args:
        time_limit: the seconds that one case may take.
    """

    def __init__(self, time_limit: float) -> None:
        self.time_limit = time_limit
        self._process: subprocess.Popen[bytes] | None = None
        self._child: int | None = None
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

    def run(self, check: Check, subject: Subject, location: Location, settings: Settings) -> Row:
        """Run a check; a crash or a hang is its failure.

        Raises:
            ElsewhereError: the operator cannot be had in another process.
        """
        started = time.monotonic()
        crashed: dict[str, str] = {}
        worst: tuple[_Running, str] | None = None
        while True:
            request = {
                "path": sys.path,
                "location": location.to_json(),
                "check": check.name,
                "kernel": subject.kernel,
                "settings": asdict(settings),
                "crashed": crashed,
            }
            running, end = self._ask(request, self.time_limit * check.time_limit)
            if isinstance(end, Row):
                if worst is None or end.status == "failed":
                    return replace(end, seconds=time.monotonic() - started)
                # It crashed before and not now; that it did is what counts.
                return self._row(check, subject, settings, worst, started, " (not every time)")
            if worst is None or running.size <= worst[0].size:
                worst = (running, end)
            hung = end.startswith("did not")
            late = time.monotonic() - started > _CRASH_SECONDS
            if (
                hung
                or late
                or not running.key
                or len(crashed) >= _CRASHES
                or running.key in crashed
            ):
                return self._row(check, subject, settings, worst, started)
            crashed[running.key] = end

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
        before = "" if running.key else ", before the first case"
        return Row(
            operator=subject.operator.name,
            kernel=subject.kernel,
            check=check.name,
            status="failed",
            cases=1 if running.key else 0,
            seconds=time.monotonic() - started,
            message=f"{end}{before}{note}",
            case=running.description,
            command=command_of(subject, check.name, settings.seed),
            where=subject.implementation.where,
        )

    # --- the processes -----------------------------------------------------------------------

    def _ask(self, request: dict[str, Any], limit: float) -> tuple[_Running, Row | str]:
        """Send a request; the row, or how the process ended, and what it was doing then."""
        running = _Running()
        if not self._make_ready():
            return running, self._died()
        assert self._process is not None and self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write((json.dumps(request) + "\n").encode())
            self._process.stdin.flush()
        while True:
            message = self._read(limit)
            if message is None:
                return running, self._died()
            if not message:
                self._end_child()
                return running, f"did not return within {limit:.0f} s"
            match message["event"]:
                case "case":
                    running = _Running(message["description"], message["key"], message["size"])
                case "ended":
                    self._child = None
                    return running, self._how(message["code"])
                case "elsewhere":
                    raise ElsewhereError(message["reason"])
                case "row":
                    row = dict(message["row"])
                    return running, Row(**{**row, "notes": tuple(row["notes"])})

    def _make_ready(self) -> bool:
        """Wait until a child takes requests; whether there is one."""
        if self._process is None:
            self._start()
        while self._child is None:
            message = self._read(_START_SECONDS)
            if not message:
                return False
            if message["event"] == "ready":
                self._child = message["pid"]
                self._said = self._output.stat().st_size
        return True

    def _start(self) -> None:
        reading, writing = os.pipe()
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            # Threads that wait must not take the cores from those that work.
            "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "passive"),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self._folder / "hypothesis"),
        }
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "opsmith.checks.worker", str(writing)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=(writing,),
                env=environment,
            )
        os.close(writing)
        self._answers, self._pending = reading, b""

    def _end_child(self) -> None:
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child, signal.SIGKILL)
        self._child = None

    def stop(self) -> None:
        """End the processes, whatever they do."""
        if self._process is None:
            return
        self._process.kill()
        self._end_child()
        self._process.wait()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        os.close(self._answers)
        self._process = None

    def _read(self, seconds: float) -> dict[str, Any] | None:
        """The next message; an empty one after `seconds` of silence, `None` if there is no more."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._answers], [], [], left)[0]:
                return {}
            more = os.read(self._answers, 1 << 16)
            if not more:
                return None
            self._pending += more
        line, _, self._pending = self._pending.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def _died(self) -> str:
        """What to say where not even the process that only imports is there."""
        tail = self._tail()
        self.stop()
        return f"the checking process did not start{tail}"

    def _how(self, code: int) -> str:
        """How a child ended, in words."""
        tail = self._tail()
        if code >= 0:
            return f"ended the process with exit code {code}{tail}"
        try:
            name = f" ({signal.Signals(-code).name})"
        except ValueError:
            name = ""
        return f"crashed with signal {-code}{name}{tail}"

    def _tail(self) -> str:
        """The last that the child said, if anything."""
        with self._output.open("rb") as output:
            output.seek(self._said)
            text = output.read().decode(errors="replace")
        lines = [line for line in text.splitlines() if line.strip()][-8:]
        return "; it said:\n" + "\n".join(f"  {line}" for line in lines) if lines else ""
