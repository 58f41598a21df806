"""`run`: every check of every kernel of every operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from opsmith.checks.execute import execute
from opsmith.checks.isolation import ElsewhereError, Worker
from opsmith.checks.locate import Location, NotLocatedError, locate
from opsmith.checks.protocol import Check, selected
from opsmith.checks.report import Report, Row
from opsmith.checks.subject import Subject
from opsmith.checks.trial import Settings
from opsmith.operators import Operator

Progress = Callable[[int, int, str], None]
"""Takes how many rows are done, how many there are, and what is being run now."""


def run(
    operators: Operator | Iterable[Operator],
    *,
    select: Sequence[str] | None = None,
    flags: Sequence[str] = (),
    seed: int = 0,
    examples: int = 60,
    seconds: float = 20.0,
    time_limit: float = 60.0,
    isolate: bool = True,
    progress: Progress | None = None,
) -> Report:
    """Build, then compare everything derived from each declaration with its reference.

    Args:
        operators: what to check.
        select: names of checks; all by default, but those that a flag asks for. Compiled kernels
            are built in any case.
        flags: asks for further checks: ``"cpp"`` for those in C++ programs.
        seed: decides every sample.
        examples: how many cases a check samples, shared among the dtypes.
        seconds: after this long a check samples no further case.
        time_limit: the seconds that one call may take before it counts as hung; compilers get
            a few times as long.
        isolate: whether kernels run in another process, so that a crash is a failed check. An
            operator that is declared in no file (a notebook, a test function) runs here anyway.
        progress: told before each row, and at the end.

    Returns:
        A row for each check of each kernel.

    Raises:
        UnknownCheckError: `select` names no check, or a flag asks for none.
        MissingError: hypothesis is not installed.
    """
    many = [operators] if isinstance(operators, Operator) else list(operators)
    checks = selected(select, flags)
    if select:
        checks = [*(one for one in selected(["build"]) if one not in checks), *checks]
    settings = Settings(seed, examples, seconds)
    plan = [(subject, check) for operator in many for subject, check in _rows_of(operator, checks)]
    report = Report([], seed)
    with Worker(time_limit) as worker:
        for done, (subject, check) in enumerate(plan):
            if progress is not None:
                progress(done, len(plan), f"{subject.operator.name} {subject.kernel} {check.name}")
            report.rows.append(_row(check, subject, settings, worker if isolate else None))
    if progress is not None:
        progress(len(plan), len(plan), "")
    return report


def _rows_of(operator: Operator, checks: Sequence[Check]) -> list[tuple[Subject, Check]]:
    """What to run for an operator, kernel by kernel."""
    found = [(subject, check) for check in checks for subject in check.subjects(operator)]
    kernels = list(dict.fromkeys(subject.kernel for subject, _ in found))
    return sorted(found, key=lambda row: (kernels.index(row[0].kernel), row[1].order))


def _row(check: Check, subject: Subject, settings: Settings, worker: Worker | None) -> Row:
    if worker is not None and not subject.missing:
        try:
            return worker.run(check, subject, _location(subject), settings)
        except (ElsewhereError, NotLocatedError):
            pass
    return execute(check, subject, settings, lambda *_: None, {})


def _location(subject: Subject) -> Location:
    return locate(subject.operator)
