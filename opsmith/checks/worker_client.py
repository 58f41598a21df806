"""Running a check in another process, and looking for the smallest case that crashes it.

Where the kernel runs apart from the check (`isolation.kernel_client`), its crash is a failure like
any other. Where both run in one process, a crash takes the search for a smaller case along. So the
parent remembers the case
that was running, and asks the next process for the same check again: sampling is deterministic, the
search comes to that case, takes it as failed without running it, and goes on to smaller ones, of
which the next may crash.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from opsmith.checks.cases.import_location import Location
from opsmith.checks.cases.rerun_case import Replay
from opsmith.checks.cases.rerun_command import command_of
from opsmith.checks.cases.settings import Settings
from opsmith.checks.cases.subject import Subject
from opsmith.checks.isolation import prestart
from opsmith.checks.isolation.launch import python, surroundings
from opsmith.checks.isolation.memory import bound_for
from opsmith.checks.isolation.supervisor_client import End, GarbledError, Supervised
from opsmith.checks.protocol import Check
from opsmith.checks.report.rows import Row
from opsmith.checks.snippet import repeated
from opsmith.errors import OpsmithError

#: How often, and for how long, a crash is followed to smaller cases.
_CRASHES, _CRASH_SECONDS = 20, 30.0
#: How much longer than a call a check may be silent that limits its kernel's calls itself.
_SLACK_SECONDS = 10.0
#: Runtimes that compile nothing for a call; elsewhere one more takes long.
_QUICK = ("eager", "kernel alone")
#: The key of no case.
_NONE = "none"
#: What importing the user's modules may take at least, on a machine that may be busy.
_IMPORT_SECONDS = 20.0


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


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""  # it was removed


@dataclass(frozen=True)
class _Running:
    """The case that a worker is busy with."""

    description: str = ""
    key: str = ""
    size: int = 0


class Worker(Supervised):
    """The processes of `opsmith.checks.worker_server`, started when needed.

    Attributes:
        hung: whether the last check was ended because a case took too long.
        started_in: the `surroundings` in which its processes were started.
    """

    def __init__(self) -> None:
        super().__init__(python(prestart.MODULE), prestart.take())
        self.hung = self._began = False
        self.started_in = surroundings() if self._process else ()
        self._compiler = False
        self._number = 0
        self._replay = Replay()

    def _start(self) -> None:
        self.started_in = surroundings()
        super()._start()

    def is_own(self) -> bool:
        """Whether this process started it, and not one that this is a fork of."""
        return self.started_in[:1] in ((), (os.getpid(),))

    def renew(self) -> bool:
        """Be as one that was just started: end what runs, remove what it wrote; whether it is."""
        if self._process is None or self.started_in != surroundings():
            return False
        self._end_child()
        self.hung = self._began = self._compiler = False
        self._replay = Replay()
        try:
            if self._make_ready() is not None:
                return False
            # The supervisor ended all that could write there before it forked again.
            self._remove_files()
        except (GarbledError, KeyError, TypeError, ValueError, OSError):
            return False
        return True

    def _remove_files(self) -> None:
        temporary = self.folder / "tmp"
        for path in [*self.folder.iterdir(), *temporary.iterdir()]:
            if path in (temporary, self._output):
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        os.truncate(self._output, 0)
        self._listen()

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
        crashed: dict[str, tuple[str, str]] = {}
        worst: tuple[_Running, End] | None = None
        self.hung = False
        failed = self.folder / "failed.pt"
        failed.unlink(missing_ok=True)
        while True:
            request = {
                "path": sys.path,
                "folder": _folder(),
                "location": location.to_json(),
                "check": check.name,
                "kernel": subject.kernel,
                "device": subject.device,
                # What does not build is not tried again by whoever imports it.
                "built": check.calls,
                "limit": limit,
                "settings": asdict(settings),
                "crashed": crashed,
                "alone": "",
                "file": str(failed),
            }
            running, end = self._ask(request, limit + (_SLACK_SECONDS if check.apart else 0.0))
            if isinstance(end, Row):
                if worst is None or end.status == "failed":
                    whole = repeated(subject, check.name, settings)
                    end = self._beside_fresh(check, end, request, limit, whole)
                    return replace(end, seconds=time.monotonic() - started)
                # It crashed before and not now; that it did is what counts.
                shown = self._shown(request, limit, worst[0].key)
                note = " (not every time)"
                return self._row(check, subject, settings, worst, started, note, shown)
            if worst is None or running.size <= worst[0].size:
                worst = (running, end)
            self.hung = end.hung
            late = time.monotonic() - started > _CRASH_SECONDS
            known = running.key in crashed
            tried = len(crashed)
            if running.key:
                crashed[running.key] = (end.how, end.code)
            if late or not end.again or not running.key or known or tried >= _CRASHES:
                note, shown = "", self._shown(request, limit, worst[0].key)
                if end.again and worst[0].key and self._is_right_alone(request, limit):
                    note, shown = _INNOCENT, repeated(subject, check.name, settings)
                return self._row(check, subject, settings, worst, started, note, shown)

    def _beside_fresh(
        self, check: Check, row: Row, request: dict[str, Any], limit: float, whole: str
    ) -> Row:
        """A row, and whether its failing call is right where no other was made before it.

        Then `whole`, Python that runs the whole check, is what shows it.
        """
        key, crashed = self._replay.key, self._replay.crashed
        crashed |= key in request["crashed"]
        slow = check.compiles and check.runtime not in _QUICK
        if row.status != "failed" or not key or slow or not self._is_right_alone(request, limit):
            return row
        first, *said = row.message.split("\n")
        lines = [f"{first}{_INNOCENT}", *said] if crashed else [first, *said, _DEPENDS]
        code = row.code if crashed else "OPS-STATE-EARLIER"
        return replace(row, message="\n".join(lines), code=code, snippet=whole)

    def _is_right_alone(self, request: dict[str, Any], limit: float) -> bool:
        """Whether the case that failed last does not fail in a process that runs no other."""
        if not Path(request["file"]).is_file():
            return False
        own = {"given": request["file"], "stores": False, "recalls": False}
        settings = {**request["settings"], **own}
        hung = self.hung
        again = {**request, "settings": settings, "crashed": {}, "alone": "", "file": ""}
        _, end = self._ask(again, limit)
        self.hung = hung
        return isinstance(end, Row) and end.status == "passed" and end.cases > 0

    def _shown(self, request: dict[str, Any], limit: float, key: str) -> str:
        """Python that shows a crash: what a process prints that runs nothing, and comes to it."""
        if not key:
            return ""
        # Of a case that crashes in one of several calls, those before are made again.
        case, _, doing = key.partition(" ")
        hung = self.hung
        _, end = self._ask({**request, "alone": case if doing else _NONE}, limit)
        self.hung = hung
        return end.snippet if isinstance(end, Row) else ""

    def _row(
        self,
        check: Check,
        subject: Subject,
        settings: Settings,
        worst: tuple[_Running, End],
        started: float,
        note: str = "",
        shown: str = "",
    ) -> Row:
        running, end = worst
        before = "" if running.key or check.name == "build" else ", before the first case"
        first, *said = end.how.split("\n")
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
            code=end.code,
            snippet=shown,
        )

    # --- the processes -----------------------------------------------------------------------

    def _ask(self, request: dict[str, Any], limit: float) -> tuple[_Running, Row | End]:
        """Send a request; the row, or how the process ended, and what it was doing then."""
        self._began = False
        running, end = self._ask_once(request, limit)
        if isinstance(end, End) and end.again and not self._began:
            # What ran before may have ended the process that was to take this.
            return self._ask_once(request, limit)
        return running, end

    def _ask_once(self, request: dict[str, Any], limit: float) -> tuple[_Running, Row | End]:
        running = _Running()
        try:
            not_ready = self._make_ready()
            if not_ready is not None:
                return running, not_ready
            assert self._child is not None
            self._number += 1
            sent = {"number": self._number, "compiler": self._compiler, **request}
            self._send((json.dumps(sent) + "\n").encode())
            row = self._child
            bound = bound_for(row, 0)
            self._listen()
            while True:
                # The operator is imported before the first case; that takes longer than a call.
                patience = limit if running.key else max(limit, _IMPORT_SECONDS)
                message = self._read(patience, bound)
                if message is None:
                    return running, self._lost()
                if not message:
                    self._end_child()
                    if bound is not None and self._exceeded:
                        return running, End(bound.excess, "OPS-CALL-MEMORY")
                    how = f"did not return within {patience:.0f} s"
                    return running, End(how, "OPS-CALL-HANG", True, False)
                if message["event"] == "ended" and message["pid"] == self._child:
                    self._child = None
                    return running, self._how(message["code"])
                if message.get("request") != self._number:
                    continue  # of a row that is done, or of a child that was ended meanwhile
                match message["event"]:
                    case "started":
                        self._began = True
                        row = message["pid"]
                        bound = bound_for(row, 0)
                    case "case":
                        size = message["size"]
                        running = _Running(message["description"], message["key"], size)
                        bound = bound_for(row, size)
                    case "elsewhere":
                        raise ElsewhereError(message["reason"])
                    case "left":
                        return running, self._how(message["code"])
                    case "row":
                        return running, self._take(message)
        except (GarbledError, KeyError, TypeError, ValueError) as error:
            # The process that runs kernels can write whatever it likes.
            tail = self._tail()
            self.stop()
            how = f"the checking process gave an answer that cannot be read ({error}){tail}"
            return running, End(how, "OPS-CHECK-LOST", again=False)

    def _take(self, message: dict[str, Any]) -> Row:
        """The row that a check ends with."""
        self._replay = Replay(**message["replay"])
        self.hung = bool(message["hung"])
        self._compiler |= bool(message["compiler"])
        if message["last"]:
            self._child = None  # it ends, and another takes its place
        return Row.revive(message["row"])
