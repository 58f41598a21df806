"""The parent's side of the worker process: time limits, crashes, and the smallest crashing case.

A crash takes the worker and its search for a smaller case along. So the parent remembers the case
that was running, starts another worker and asks for the same check again: sampling is
deterministic, the search comes to that case, takes it as failed without running it, and goes on to
smaller ones, of which the next may crash.
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

#: Starting a worker imports torch, on a machine that may be busy.
_START_SECONDS = 120.0
#: How often, and for how long, a crash is followed to smaller cases.
_CRASHES, _CRASH_SECONDS = 6, 40.0


class ElsewhereError(OpsmithError):
    """A worker cannot declare the operator as it is in the parent."""


@dataclass(frozen=True)
class _Running:
    """The case that a worker is busy with."""

    description: str = ""
    key: str = ""
    size: int = 0


class Worker:
    """A worker process, started when needed and again after a crash.

    Args:
        time_limit: the seconds that one case may take.
    """

    def __init__(self, time_limit: float) -> None:
        self.time_limit = time_limit
        self._process: subprocess.Popen[bytes] | None = None
        self._answers = -1
        self._pending = b""
        self._fresh = True
        self._folder = Path(tempfile.mkdtemp(prefix="opsmith-check-"))

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

    # --- the process -------------------------------------------------------------------------

    def _ask(self, request: dict[str, Any], limit: float) -> tuple[_Running, Row | str]:
        """Send a request; the row, or how the worker ended, and what it was doing then."""
        self._start()
        assert self._process is not None and self._process.stdin is not None
        running = _Running()
        try:
            self._process.stdin.write((json.dumps(request) + "\n").encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            return running, self._ended()
        wait = limit + (_START_SECONDS if self._fresh else 0.0)
        while True:
            message = self._read(wait)
            if message is None:
                return running, self._ended()
            if not message:
                self.stop()
                return running, f"did not return within {limit:.0f} s"
            self._fresh, wait = False, limit
            if message["event"] == "case":
                running = _Running(message["description"], message["key"], message["size"])
            elif message["event"] == "elsewhere":
                raise ElsewhereError(message["reason"])
            else:
                row = dict(message["row"])
                return running, Row(**{**row, "notes": tuple(row["notes"])})

    def _start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self.stop()
        reading, writing = os.pipe()
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            # Threads that wait must not take the cores from those that work.
            "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "passive"),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self._folder / "hypothesis"),
        }
        with open(self._folder / "output", "wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "opsmith.checks.worker", str(writing)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=(writing,),
                env=environment,
            )
        os.close(writing)
        self._answers, self._pending, self._fresh = reading, b"", True

    def stop(self) -> None:
        """End the process, whatever it does."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
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

    def _ended(self) -> str:
        """How the process ended, in words."""
        assert self._process is not None
        code = self._process.wait()
        tail = self._tail()
        self.stop()
        if code < 0:
            try:
                name = f" ({signal.Signals(-code).name})"
            except ValueError:
                name = ""
            return f"crashed with signal {-code}{name}{tail}"
        return f"ended the process with exit code {code}{tail}"

    def _tail(self) -> str:
        """The last that the process said, if anything."""
        text = (self._folder / "output").read_text(errors="replace").strip()
        lines = [line for line in text.splitlines() if line.strip()][-8:]
        return "; it said:\n" + "\n".join(f"  {line}" for line in lines) if lines else ""
