"""Run a check in another process, and search for the smallest case that crashes it.

If the kernel runs in a process of its own (`isolation.kernel_client`), its crash is a failure like
any other. If it runs in the process of the check, a crash ends the search for a smaller case. So
the parent remembers the case that was running, and sends the same check to the next process.
Sampling is deterministic: the search comes to that case, counts it as failed without running it,
and goes on to smaller cases, of which the next may crash.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from opsmith.checks.cases.failure import DEPENDS
from opsmith.checks.cases.reruns.rerun_command import Replay, command_of
from opsmith.checks.cases.settings import Settings
from opsmith.checks.cases.subject import Subject
from opsmith.checks.isolation import prestart
from opsmith.checks.isolation.import_location import Location
from opsmith.checks.protocol import Check
from opsmith.checks.report.rows import Row
from opsmith.checks.reproduction.snippet import repeated
from opsmith.errors import OpsmithError
from opsmith.system.processes.launch import python, surroundings
from opsmith.system.processes.memory import bound_for
from opsmith.system.processes.supervisor_client import EndError, Supervised

#: Limits, in crashes and in seconds, for following a crash to smaller cases.
_CRASHES, _CRASH_SECONDS = 20, 30.0
#: Extra seconds of silence granted to a check that itself limits the time of its kernel's calls.
_SLACK_SECONDS = 10.0
#: Runtimes in which a call compiles nothing; in other runtimes a repeated call takes long.
_QUICK = ("eager", "kernel alone")
#: A key that belongs to no case.
_NONE = "none"
#: The least time limit for importing the user's modules, on a machine that may be busy.
_IMPORT_SECONDS = 20.0

#: How often a call that failed is repeated, to tell earlier calls from threads as the cause.
_REPEATS = 100
_RACES = (
    "However often it is repeated, one thread gives the right results: either two pieces of the "
    "work write to one place, or the result depends on how the work is cut."
)
_FINDS_RACES = " --check sanitize-thread names the lines of two threads that meet."
_INNOCENT = (
    "; called alone in a fresh process it does not crash: an earlier call may have damaged memory, "
    "and this case may be innocent"
)


class ElsewhereError(OpsmithError):
    """Raised if a worker cannot declare the operator as it is declared in the parent."""


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""  # the folder was removed


@dataclass(frozen=True)
class _Running:
    """The case that a worker is running."""

    description: str = ""
    key: str = ""
    size: int = 0


class Worker(Supervised):
    """The processes of `opsmith.checks.worker_server`, started when needed.

    Attributes:
        hung: whether the last check was ended because a case took too long.
        started_in: the `surroundings` in which its processes were started.
    """

    passes_over = True  # answers from an earlier row, or from a child that was ended meanwhile

    def __init__(self) -> None:
        super().__init__(python(prestart.MODULE), prestart.take())
        self.hung = self._began = False
        self.started_in = surroundings() if self._process else ()
        self._compiler = False
        self._starting = 0.0
        self._replay = Replay()

    def _start(self) -> None:
        self.started_in = surroundings()
        super()._start()

    def is_own(self) -> bool:
        """Return whether this process, and not its parent before a fork, started the worker."""
        return self.started_in[:1] in ((), (os.getpid(),))

    def renew(self) -> bool:
        """End the worker's child processes and remove its files; return whether that worked."""
        if self._process is None or self.started_in != surroundings():
            return False
        self._end_child()
        self.hung = self._began = self._compiler = False
        self._replay = Replay()
        try:
            self.make_ready()
            # Before it forked again, the supervisor ended every process that could write there.
            self._remove_files()
        except (EndError, OSError):
            return False
        return True

    def _remove_files(self) -> None:
        temporary = self.folder / "tmp"
        for path in [*self.folder.iterdir(), *temporary.iterdir()]:
            if path == temporary:
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
        """Run a check. If it crashes, hangs or exceeds its memory, return a failed row.

        Args:
            location: where the operator is declared.
            time_limit: the seconds that one case may take; by default those of `settings`.

        Raises:
            ElsewhereError: the operator cannot be declared in another process.
        """
        started = time.monotonic()
        limit = (time_limit or settings.time_limit) * check.time_limit
        crashed: dict[str, tuple[str, str]] = {}
        worst: tuple[_Running, EndError] | None = None
        self.hung, self._starting = False, 0.0
        failed = self.folder / "failed.pt"
        failed.unlink(missing_ok=True)
        while True:
            request = {
                "path": sys.path,
                "argv": sys.argv,
                "folder": _folder(),
                "location": location.to_json(),
                "check": check.name,
                "kernel": subject.kernel,
                "device": subject.device,
                # A kernel that did not build is not built again when the operator is imported.
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
                    end = self._beside_fresh(check, subject, end, request, limit, whole)
                    seconds = time.monotonic() - started
                    spent = {**end.timings, "starting": self._starting}
                    spent["starting"] += end.timings.get("starting", 0.0)
                    # What no process accounts for was spent on answers, or on further processes.
                    waited = end.timings.get("waiting", 0.0)
                    spent["waiting"] = waited + max(0.0, seconds - sum(spent.values()))
                    return replace(end, seconds=seconds, timings=spent)
                # The check crashed before, and not this time; the crash is what counts.
                shown = self._shown(request, limit, worst[0].key)
                note = " (not every time)"
                return self._row(check, subject, settings, worst, started, note, shown)
            if check.apart and end.code == "OPS-CALL-MEMORY":  # the reference's, and of any size
                return self._row(check, subject, settings, (running, end), started)
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
        self,
        check: Check,
        subject: Subject,
        row: Row,
        request: dict[str, Any],
        limit: float,
        whole: str,
    ) -> Row:
        """Return a row, changed if its failing call gives the right results in a fresh process.

        The row then tells whether it gives them with one thread only, and its snippet is `whole`:
        Python that runs the whole check.
        """
        key, crashed = self._replay.key, self._replay.crashed
        crashed |= key in request["crashed"]
        slow = check.compiles and check.runtime not in _QUICK
        # A case by itself is called plainly, so it says nothing about modes and threads.
        plain = row.code not in ("OPS-STATE-MODE", "OPS-STATE-THREADS")
        if row.status != "failed" or not key or not plain or slow:
            return row
        # Where equal calls differ, noise may be right by chance.
        times = 8 if row.code == "OPS-DETERMINISM-REPEAT" else 1
        alone = all(self._is_right_alone(request, limit, seed=seed) for seed in range(times))
        first, *said = row.message.split("\n")
        if check.apart and not crashed:
            again = alone and self._is_right_alone(request, limit, repeats=_REPEATS)
            # Twice, since a fault of chance may stay away once.
            one = {"repeats": _REPEATS, "threads": 1}
            if not again and all(self._is_right_alone(request, limit, **one) for _ in range(2)):
                races = _RACES + _FINDS_RACES * (subject.implementation.entry is not None)
                message = "\n".join(
                    [f"{first}; with one thread the same call is right", *said, races]
                )
                return replace(row, message=message, code="OPS-DETERMINISM-THREADS", snippet=whole)
        if not alone:
            return row
        lines = [f"{first}{_INNOCENT}", *said] if crashed else [first, *said, DEPENDS]
        code = row.code if crashed else "OPS-STATE-EARLIER"
        return replace(row, message="\n".join(lines), code=code, snippet=whole)

    def _is_right_alone(self, request: dict[str, Any], limit: float, **options: int) -> bool:
        """Return whether the case that failed last passes in a process that runs no other case."""
        if not Path(request["file"]).is_file():
            return False
        own = {"given": request["file"], "stores": False, "recalls": False}
        settings = {**request["settings"], **own, **options}
        hung = self.hung
        again = {**request, "settings": settings, "crashed": {}, "alone": "", "file": ""}
        _, end = self._ask(again, limit)
        self.hung = hung
        return isinstance(end, Row) and end.status == "passed" and end.cases > 0

    def _shown(self, request: dict[str, Any], limit: float, key: str) -> str:
        """Return Python that shows a crash, written by a process that does not run the case."""
        if not key:
            return ""
        # If the case crashes in one of several calls, make the calls before that call again.
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
        worst: tuple[_Running, EndError],
        started: float,
        note: str = "",
        shown: str = "",
    ) -> Row:
        running, end = worst
        before = "" if running.key or check.name == "build" else ", before the first case"
        first, *said = end.how.split("\n")
        # If the kernel runs in another process, the reference ended this one.
        spent = check.apart and (end.hung or end.code == "OPS-CALL-MEMORY")
        blameless = spent or (check.apart and end.code in ("OPS-CALL-CRASH", "OPS-CALL-EXIT"))
        if blameless:
            cases = ", or a function of register_cases," * bool(before and subject.operator.cases)
            first = f"the reference{cases} {first}"
        return Row(
            operator=subject.operator.name,
            kernel=subject.kernel,
            check=check.name,
            # On a busy machine, preparing takes as long as it likes: no case says that one hangs.
            status="cut short" if spent or (before and end.hung) else "failed",
            cases=1 if running.key else 0,
            seconds=time.monotonic() - started,
            message="\n".join([f"{first}{before}{note}", *said]),
            case=running.description,
            command=command_of(subject, check.name, settings),
            where="" if blameless else subject.implementation.where,
            code=end.code,
            snippet=shown,
        )

    # --- the processes -----------------------------------------------------------------------

    def _ask(self, request: dict[str, Any], limit: float) -> tuple[_Running, Row | EndError]:
        """Send a request. Return the case that ran last, and the row or how the process ended."""
        self._began = False
        running, end = self._ask_once(request, limit)
        if isinstance(end, EndError) and end.again and not self._began:
            # An earlier row may have ended the process that was to serve this request.
            return self._ask_once(request, limit)
        return running, end

    def _ask_once(self, request: dict[str, Any], limit: float) -> tuple[_Running, Row | EndError]:
        running, asked = _Running(), time.monotonic()
        try:
            self.make_ready()
            self._listen()
            self.tell({"compiler": self._compiler, **request})
            bound = bound_for(self._child or 0, 0)
            while True:
                # Before the first case, the operator is imported, which takes longer than a call.
                patience = limit if running.key else max(limit, _IMPORT_SECONDS)
                message, _ = self.receive(patience, bound)
                with self.reading():
                    match message["event"]:
                        case "started":
                            self._began = True
                            self._starting += time.monotonic() - asked
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
        except EndError as end:
            return running, end

    def _take(self, message: dict[str, Any]) -> Row:
        """Update this worker from a check's last message, and return the row."""
        self._replay = Replay(**message["replay"])
        self.hung = bool(message["hung"])
        self._compiler |= bool(message["compiler"])
        if message["last"]:
            self._child = None  # the process ends, and another replaces it
        return Row.revive(message["row"])
