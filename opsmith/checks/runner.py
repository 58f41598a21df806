"""Run checks: `run` runs every check of every kernel of every operator; `run_check` runs one."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from opsmith.checks.cases.case import FAILED_BEFORE, Case
from opsmith.checks.cases.disagreement import equal_sizes, other_shape
from opsmith.checks.cases.failure import HURRIED, Failure, Inapplicable
from opsmith.checks.cases.reruns.rerun_command import Replay, command_of
from opsmith.checks.cases.reruns.stored_cases import (
    Stored,
    beside,
    drop,
    file_for,
    keep_given,
    store,
    stored_in,
    write_cases,
)
from opsmith.checks.cases.settings import Settings
from opsmith.checks.cases.subject import REFERENCE, Subject, subject_on, subjects_of
from opsmith.checks.isolation.import_location import NotLocatedError, locate
from opsmith.checks.isolation.kernel_client import Caller
from opsmith.checks.isolation.process_state import Surroundings
from opsmith.checks.protocol import PLAIN_CALLS, Check, selected
from opsmith.checks.report.rows import Row, Status
from opsmith.checks.reproduction.snippet import snippet
from opsmith.checks.row_history import FirstToTell, History, failed, not_run
from opsmith.checks.run_report import Report
from opsmith.checks.trial.case_runner import Announce
from opsmith.checks.trial.case_source import explain_no_case
from opsmith.checks.trial.trial import Trial
from opsmith.checks.workers.earlier_rows import EarlierRows
from opsmith.checks.workers.schedule import Progress, Schedule, kernel_of
from opsmith.checks.workers.worker_client import ElsewhereError, Worker
from opsmith.checks.workers.worker_pool import borrowed, helped
from opsmith.errors import MissingDependencyError, OpsmithError
from opsmith.kernels import get_device
from opsmith.operators import Operator
from opsmith.sources.importing import end_import
from opsmith.system.stopwatch import accounted

#: After a kernel hung, its other checks get this fraction of the time limit, but at least this
#: many seconds.
_LESS, _LEAST_SECONDS = 0.1, 1.0
#: With this many refused samples for each accepted sample, add advice on how to draw fewer.
_MANY_REFUSED = 10


def run(
    operators: Operator | Iterable[Operator],
    *,
    select: Sequence[str] | None = None,
    cases: Sequence[Mapping[str, Any]] = (),
    flags: Sequence[str] = (),
    seed: int = 0,
    examples: int = 60,
    seconds: float = 60.0,
    time_limit: float = 60.0,
    isolate: bool = True,
    jobs: int = 1,
    devices: Sequence[str] = (),
    warp: int = 32,
    stores: bool = False,
    recalls: bool = False,
    allow_cut_short: bool = False,
    first: bool = False,
    earlier: EarlierRows | None = None,
    progress: Progress | None = None,
    on_row: Callable[[Row], None] | None = None,
) -> Report:
    """Build each kernel, then compare everything derived from its declaration with the reference.

    Args:
        select: names of checks; by default all checks that need no flag. Compiled kernels are built
            in any case.
        cases: arguments by name for one operator, with their memory layout. They replace the
            author's cases and the samples. For a check of pairs, give two cases that differ only in
            sizes.
        flags: turn on further checks: ``"cpp"`` those in C++ programs.
        seed: decides every sample.
        examples: number of cases that a check samples, shared among the dtypes.
        seconds: after this long a check samples no further case.
        time_limit: the seconds that one call may take before it counts as hung; compilers get a few
            times as long. Once a kernel hung, its other checks get a tenth of it; once three of its
            checks hung, the others are not run.
        isolate: whether kernels run in another process, so that a crash is a failed check. An
            operator that is not declared in a file (a notebook, a test function) runs in this
            process anyway.
        jobs: number of rows that may run in parallel, each in a process of its own; more than one
            is used only if rows wait for compilers, and only with `isolate`.
        devices: device types to check, all of which must be present; by default those that have
            kernels. An operator without a kernel for one of them fails: its calls run the
            reference.
        warp: number of threads in a warp of CUDA kernels that the row ``cuda-on-cpu`` emulates: 32
            as on NVIDIA's GPUs, or 64 as on AMD's Instinct.
        stores: whether to keep failing cases next to the build files.
        recalls: whether to begin with the failing cases that earlier runs kept.
        allow_cut_short: whether the report is *ok* if a check ran out of time before it had tried
            enough cases to pass.
        first: whether to end with the first failure of each operator.
        earlier: the rows of the last run. Those that failed run first; those that still hold do not
            run again, and the report says so.
        progress: called before each row, and at the end; from several threads, one at a time.
        on_row: called with each row in order, as soon as it and the rows before it are done; from
            several threads, one at a time.

    Returns:
        A row for each check of each kernel.

    Raises:
        ValueError: `cases` come with several operators.
        ArgumentError: `cases` do not fit the declaration.
        UnknownCheckError: `select` names no check, or a flag turns on no check.
        MissingDependencyError: hypothesis is not installed, or a requested device is absent.
    """
    end_import("opsmith.checks.run")
    started = time.monotonic()
    many = [operators] if isinstance(operators, Operator) else list(operators)
    if cases and len(many) != 1:
        raise ValueError(f"cases are the arguments of one operator, and there are {len(many)}")
    require_devices(devices)
    plan = planned(many, select, flags, devices)
    if earlier is not None:
        kernels = list(dict.fromkeys(kernel_of(subject) for subject, _ in plan))

        def turn(row: tuple[Subject, Check]) -> tuple[int, bool, bool]:
            subject, check = row
            place = kernels.index(kernel_of(subject))
            return place, check.name != "build", not earlier.failed(check, subject)

        plan.sort(key=turn)
    settings = Settings(
        seed,
        examples,
        seconds,
        time_limit,
        stores=stores,
        recalls=recalls,
        devices=tuple(devices),
        warp=warp,
    )
    left_out = [
        not_run(check, subject, "not asked for")
        for subject, check in (planned(many, None, flags, devices) if select else ())
        if (subject, check) not in plan
    ]
    histories = {kernel_of(subject): History() for subject, _ in plan}
    schedule = Schedule(plan, progress, on_row, FirstToTell(plan, histories).settle)
    with borrowed() if isolate else Worker() as worker:
        # The folder is removed with the run, however the run ends.
        shared = replace(settings, shared=str(worker.folder / "shared"), truths=True)
        if cases:
            given = worker.folder / "given.pt"
            keep_given(cases, many[0], given)
            shared = replace(shared, given=str(given))

        def run_row(position: int, worker: Worker) -> Row | None:
            subject, check = plan[position]
            history = histories[kernel_of(subject)]
            held = earlier.holding(check, subject) if earlier is not None else None
            if held is not None:
                return held
            ended = failed(histories, subject.operator.name) if first else ""
            if subject.kernel in subject.operator.variants:
                own = subject.operator.name, subject.implementation.device
                why = histories[own].first if own in histories else ""
                if why:
                    return not_run(check, subject, f"not run because of {why} of {own[1]}")
            if ended and check.name not in PLAIN_CALLS:
                return not_run(check, subject, f"not run, since {ended} failed")
            return _row(check, subject, shared, worker, history) if isolate else None

        helpers = min(jobs - 1, schedule.helpers()) if isolate and not first else 0
        schedule.alone = not helpers
        # The first row is this thread's, so that its worker has a process: if this process is
        # killed, the worker's removes the folder.
        position = schedule.take()
        with helped(schedule, plan, run_row, helpers):
            while position is not None:
                row = run_row(position, worker)
                if row is None:
                    subject, check = plan[position]
                    row = _here(check, subject, shared, histories[kernel_of(subject)])
                schedule.give(position, row)
                position = schedule.take()
    elapsed = time.monotonic() - started
    own = (subject.operator for subject, _ in plan if not subject.adopted)
    bare = dict.fromkeys(one.name for one in own if list(one.kernels) == [REFERENCE])
    return Report(schedule.rows(), seed, elapsed, left_out, allow_cut_short, list(bare))


def require_devices(names: Sequence[str]) -> None:
    """Raise `MissingDependencyError` if a device is absent."""
    for name in names:
        absent = get_device(name, f"device {name!r}").missing()
        if absent:
            raise MissingDependencyError(
                f"device {name!r}: {absent}. Run this on a machine that has one, with a PyTorch "
                "that supports it. By default, kernels for absent devices are left out; the row "
                "cuda-on-cpu checks kernels in CUDA C++ without a GPU."
            )


def planned(
    operators: Sequence[Operator],
    select: Sequence[str] | None,
    flags: Sequence[str] = (),
    devices: Sequence[str] = (),
) -> list[tuple[Subject, Check]]:
    """Return the rows that `run` runs, in order.

    Raises:
        UnknownCheckError: `select` names no check, or a flag turns on no check.
    """
    checks = selected(select, flags)
    before = [one for one in selected(["build"]) if select and one not in checks]
    return [
        (subject, check)
        for operator in operators
        for subject, check in _of(operator, before, checks, devices)
    ]


def _of(
    operator: Operator, before: Sequence[Check], checks: Sequence[Check], devices: Sequence[str]
) -> list[tuple[Subject, Check]]:
    """Return the rows to run for an operator, kernel by kernel.

    The checks `before` run for the kernels that others of `checks` are about, or for all if there
    are none.
    """
    found = [
        (subject, check)
        for check in (*before, *checks)
        for subject in _subjects(check, operator, devices)
    ]
    asked = {subject.kernel for subject, check in found if check not in before}
    found = [row for row in found if not asked or row[0].kernel in asked]
    kernels = list(dict.fromkeys(subject.kernel for subject, _ in found))
    return sorted(found, key=lambda row: (kernels.index(row[0].kernel), row[1].order))


def _subjects(check: Check, operator: Operator, devices: Sequence[str]) -> list[Subject]:
    """Return the subjects of a check; with `devices`, at least one on each of the devices.

    Where no kernel is for these devices, the others come along as missing: none was looked at.
    """
    every = check.parts(operator)
    if not devices:
        return every
    found = [subject for subject in every if subject.device in devices]
    if all(subject.kernel == REFERENCE for subject in found):
        why = f"it is for {{}}, and calls on {', '.join(devices)} were asked for"
        others = (subject for subject in every if subject.kernel != REFERENCE)
        found += [replace(one, missing=why.format(one.device)) for one in others]
    if check.subjects is subjects_of:
        reached = {subject.device for subject in found}
        found += [subject_on(operator, device) for device in devices if device not in reached]
    return found


def _row(
    check: Check, subject: Subject, settings: Settings, worker: Worker, history: History
) -> Row | None:
    """Run a check in a worker, and return its row; `None` if the worker cannot run it."""
    obstacle = history.obstacle(check)
    if obstacle:
        return not_run(check, subject, obstacle)
    row = _isolated(check, subject, settings, worker, history)
    if row is not None:
        history.learn(row)
    return row


def _here(check: Check, subject: Subject, settings: Settings, history: History) -> Row:
    """Run a check in this process, and return its row."""
    obstacle = history.obstacle(check)
    if obstacle:
        return not_run(check, subject, obstacle)
    with accounted() as timings:
        row = run_check(check, subject, settings, lambda *_: None, {})
    row = replace(row, timings=timings)
    history.learn(row)
    return row


def _isolated(
    check: Check, subject: Subject, settings: Settings, worker: Worker, history: History
) -> Row | None:
    if subject.missing:
        return None
    limit = settings.time_limit
    if history.hung:
        limit = min(limit, max(_LEAST_SECONDS, _LESS * limit))
    try:
        row = worker.run(check, subject, locate(subject.operator), settings, limit)
    except (ElsewhereError, NotLocatedError):
        return None
    if worker.hung and row.status == "failed":  # no kernel hangs where its reference does
        if limit < settings.time_limit:
            first = f"{row.message} {HURRIED} {history.hung[0]} hung)"
            row = replace(row, message=first)
        history.hung.append(check.name)
    return row


def run_check(
    check: Check,
    subject: Subject,
    settings: Settings,
    announce: Announce,
    crashed: Mapping[str, tuple[str, str]],
    replay: Replay | None = None,
    caller: Caller | None = None,
) -> Row:
    """Run one check in this process.

    Args:
        announce: called before each case.
        crashed: keys of cases that ended a process before: how it ended, and the failure code.
        replay: receives the case that failed, and says whether only one case is to run.
        caller: the process that the kernel runs in; this process by default.
    """
    started = time.monotonic()
    replay = replay or Replay()
    trial = Trial(subject, check.name, settings, announce, crashed, replay, caller=caller)
    kept = file_for(subject, check.name)
    if settings.recalls:
        trial.cases.recalled = stored_in(kept, subject)
    status: Status = "passed"
    message, case, code, shown, seeded = "", "", "", "", True
    try:
        trial.need(not subject.missing, subject.missing)
        _build(check, subject)
        # Undo a kernel's side effects on the process, so that they cannot affect later rows.
        with Surroundings(), _without_traces():
            check.run(trial)
        if check.samples and not trial.counts.ran:
            raise Failure(
                explain_no_case(trial.operator, trial.settings, trial.counts), code="OPS-CASES-NONE"
            )
        status, message = trial.passed()
    except Inapplicable as reason:
        status, message = "not applicable", str(reason)
    except Failure as found:
        # A plain call of a kernel that is emulated is none of the kernel.
        failure = trial.cause_of(found) if check.calls else found
        status, message, code = "failed", str(failure), failure.code
        if failure.case is not None:
            case, replay.key = failure.case.describe(), failure.case.digest
            replay.crashed = failure.crashed
            seeded = failure.case.origin != FAILED_BEFORE
            shown = _shown(trial, failure, kept)
            # The reference of an adopted operator is the operator, which may end this process.
            adopted = subject.adopted or failure.crashed
            other = "" if adopted else other_shape(trial.operator, failure.case)
            if other:
                message, code = f"{other}\n{message}", "OPS-RESULT-DECLARED"
        trial.attribution.blame = failure.blame or trial.attribution.blame
    except Exception as error:
        status, message, code = "failed", trial.raised(error), trial.attribution.raises
    if status == "passed" and settings.stores and not replay.alone:
        drop(kept)
    if trial.counts.refused > trial.counts.ran:
        if status == "passed":
            trial.notes.append(_refused(trial))
        elif status == "cut short":
            message += f"; {_refused(trial)}"
    return Row(
        operator=subject.operator.name,
        kernel=subject.kernel,
        check=check.name,
        status=status,
        cases=trial.counts.ran,
        error=trial.counts.error,
        seconds=time.monotonic() - started,
        message=message,
        case=case,
        notes=tuple(dict.fromkeys(trial.notes)),
        command=command_of(subject, check.name, settings, seeded=seeded),
        where=subject.implementation.where,
        blame=trial.attribution.blame,
        code=code,
        samples=trial.counts.tally.samples(),
        snippet=shown,
    )


def _shown(trial: Trial, failure: Failure, path: Path) -> str:
    """Return Python that shows a failing case. Store the case too, if that is wanted or needed."""

    def keep(case: Case) -> Path:
        place = path if case is failure.case else beside(path)
        store(place, Stored(case, trial.cases.family, trial.settings.seed))
        return place

    # A kernel that ran in this process may have changed anything that this code needs.
    with contextlib.suppress(Exception):
        if trial.replay.file and failure.case is not None:
            several = [case for case in (failure.case, failure.beside) if case is not None]
            write_cases(several, Path(trial.replay.file))
        if trial.settings.stores and failure.case is not None:
            keep(failure.case)
        return snippet(trial, failure, keep)
    return ""


@contextmanager
def _without_traces() -> Iterator[None]:
    """Turn off PyTorch's trace log, which records a stack per guard, unless the user enabled it."""
    logger = logging.getLogger("torch.__trace")
    handlers = [] if "TORCH_TRACE" in os.environ else list(logger.handlers)
    for handler in handlers:
        logger.removeHandler(handler)
    try:
        yield
    finally:
        for handler in handlers:
            logger.addHandler(handler)


def _build(check: Check, subject: Subject) -> None:
    if not check.calls:
        return
    try:
        subject.build()
    except OpsmithError as error:
        raise Inapplicable(f"the kernel does not build: {str(error).splitlines()[0]}") from error


def _refused(trial: Trial) -> str:
    text = f"the reference refused {trial.counts.refused} samples: {trial.counts.refusal}"
    equal = equal_sizes(trial.counts.taken_sizes, trial.counts.refused_sizes)
    text += f". {equal}" * bool(equal)
    if trial.counts.refused < _MANY_REFUSED * trial.counts.ran:
        return text
    return f"{text}. That takes time: say what arguments may be, or register_cases(only=True)"
