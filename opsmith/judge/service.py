"""Judge many candidates, several at a time, on this machine or on many."""

from __future__ import annotations

import faulthandler
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from opsmith.checks.cluster.lanes import Lanes, LocalLane, Lost, each_answer, versions
from opsmith.checks.cluster.on_ray import lanes_of
from opsmith.errors import INCOMPLETE, LoadError, OpsmithError, StorageError
from opsmith.judge.judge import NothingJudgedError, judge, require_sandbox
from opsmith.judge.snapshot import Files, TooLargeError, collect
from opsmith.judge.specification import read_spec
from opsmith.system.files import key_of, storing

#: The exit code for each outcome.
CODES = {"accepted": 0, "refused": 1, "undecided": INCOMPLETE}
#: Seconds beyond a candidate's deadline after which the judge itself counts as stuck.
_SLACK = 300.0


def judge_all(
    spec: str | Path,
    candidates: Sequence[str | Path],
    *,
    jobs: int | None = None,
    ray: str = "",
    results: Path | None = None,
    say: Callable[[str], None] = lambda message: None,
    **options: Any,
) -> Iterator[dict[str, Any]]:
    """Judge candidates in processes that import the specification once.

    Args:
        spec: the file that declares operators.
        candidates: the files that register kernels.
        jobs: number of candidates that are judged at a time; by default 1, or as many as a cluster
            has processors.
        ray: the address of a cluster of Ray; on this machine by default.
        results: a file that keeps what is yielded; what it has from earlier runs is not judged
            again.
        say: called with why a process judges nothing, on a machine without a sandbox or with other
            versions, and with why a process ended.
        options: options of `judge`.

    Yields:
        As soon as a candidate is judged: ``candidate``, its file; ``outcome``, a key of `CODES`;
        ``seconds``; and ``verdict``, the fields of `Verdict.to_json`, or ``message``, why there is
        no verdict. ``kept``, if the results of an earlier run had it.

    Raises:
        OpsmithError: no process could begin; the error of the first.
    """
    stated = read_spec(Path(spec))
    facts = {"spec": stated.state(), "options": options, "versions": versions()}
    with ExitStack() as stack:
        kept = stack.enter_context(_opened(results)) if results is not None else None
        due = []
        for path in map(Path, candidates):
            key = _key(facts, _read(path)) if kept is not None else ""
            if kept is not None and key in kept.places:
                yield kept.read(key) | {"candidate": str(path)}
            else:
                due.append(path)
        if not due:
            return
        lanes = stack.enter_context(lanes_of(ray, jobs)) if ray else _local(jobs or 1)
        deadline = options.get("deadline", 3600.0) + _SLACK
        begin = (_begin, stated, {**options, "beside": lanes.beside}, deadline)
        keys: dict[Path, str] = {}

        def ask(path: Path) -> tuple[Any, ...]:
            files = _read(path)
            keys[path] = _key(facts, files)
            return (_judged, files) if isinstance(files, Files) else (_undecided, files)

        answers = each_answer(due, lanes, begin, ask, patience=deadline, say=say)
        for path, answer in answers:
            said: dict[str, Any] = {"candidate": str(path)}
            if isinstance(answer, Lost):
                yield said | {"outcome": "undecided", "message": answer.reason, "seconds": 0.0}
                continue
            said |= json.loads(answer)
            key = keys.pop(path)
            if not said.pop("again", False) and kept is not None:
                said["key"] = key
                kept.add(said)
            yield said


def _local(jobs: int) -> Lanes:
    return Lanes(LocalLane, jobs, jobs)


def _read(path: Path) -> Files | str:
    """Read a candidate; return why it cannot be read. One that is too large is refused later."""
    try:
        return collect(path)
    except TooLargeError as error:
        return Files(path, path.parent, problem=str(error))
    except LoadError as error:
        return str(error)


def _key(facts: dict[str, Any], files: Files | str) -> str:
    state = (files.state(), files.problem) if isinstance(files, Files) else files
    return key_of({**facts, "candidate": state})


# --- in the process of a lane --------------------------------------------------------------------

#: The specification, the options and the seconds that a candidate may take.
_given: list[Any] = []


def _begin(spec: Files, options: dict[str, Any], deadline: float) -> None:
    """Take the specification; raise if this machine cannot judge."""
    require_sandbox(options.get("trust_candidate", False))
    _given[:] = [spec, options, deadline]


def _judged(candidate: Files) -> str:
    """Judge a candidate, and return the fields of its line as JSON."""
    spec, options, deadline = _given
    started = time.monotonic()
    said: dict[str, Any]
    with open(os.devnull, "w") as nowhere:
        # The judge ends a candidate that is late; this ends a judge that does not.
        faulthandler.dump_traceback_later(deadline, exit=True, file=nowhere)
        try:
            verdict = judge(spec, candidate, **options)
        except NothingJudgedError as error:
            said = {"outcome": "undecided", "message": str(error)}
        except OpsmithError as error:
            # The machine is at fault, as when its disk is full.
            return _undecided(str(error))
        else:
            said = {"outcome": verdict.outcome, "verdict": json.loads(verdict.to_json())}
        finally:
            faulthandler.cancel_dump_traceback_later()
    return json.dumps(said | {"seconds": round(time.monotonic() - started, 3)})


def _undecided(message: str) -> str:
    """Return the fields of a line that is not kept."""
    said = {"outcome": "undecided", "message": message, "seconds": 0.0, "again": True}
    return json.dumps(said)


# --- results of earlier runs ---------------------------------------------------------------------


class _Kept:
    """The lines of a file, each found by its key; a line is there as a whole, or not at all."""

    def __init__(self, file: BinaryIO, name: Path) -> None:
        self.file = file
        self.places: dict[str, int] = {}
        file.seek(0)
        end = 0
        # A command that was killed may have left a part of a line at the end.
        for line in filter(lambda line: line.endswith(b"\n"), file):
            try:
                self.places[json.loads(line)["key"]] = end
            except (ValueError, KeyError, TypeError):
                raise LoadError(
                    f"{name} is no file of results, by this line: {line[:80]!r}"
                ) from None
            end += len(line)
        file.truncate(end)

    def read(self, key: str) -> dict[str, Any]:
        """Return the fields of a line."""
        self.file.seek(self.places[key])
        return {**json.loads(self.file.readline()), "kept": True}

    def add(self, said: dict[str, Any]) -> None:
        """Append a line."""
        self.file.write(json.dumps(said).encode() + b"\n")
        self.file.flush()


@contextmanager
def _opened(path: Path) -> Iterator[_Kept]:
    """Open a file of results, which one command at a time may do."""
    with storing(path):
        file = path.open("a+b")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageError(f"another command writes its results to {path}") from None
        yield _Kept(file, path)
