"""The rows of a run, and its overall outcome."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from opsmith.errors import CheckError

Status = Literal["passed", "failed", "cut short", "not applicable", "not run"]
Outcome = Literal["passed", "failed", "incomplete"]
#: The statuses of rows without any tried case.
UNTRIED: tuple[Status, ...] = ("not applicable", "not run")
#: The kernel of rows about the reference itself.
_REFERENCE = "reference"
#: The note of a row of an earlier run.
FROM_BEFORE = "from before: nothing that it rests on has changed"
#: The checks that compile a kernel and do not call it.
_COMPILING = ("build", "nvcc")
#: The beginnings, behind OPS-, of the codes that other failures may follow from, in their order.
MEMORY = (
    *("MEMORY-BOUNDS", "SANITIZE", "MEMORY-UNINITIALIZED", "MUTATION-UNDECLARED"),
    *("RESULT-UNWRITTEN", "CUDA"),
)
RACES = ("SCHEDULES", "DETERMINISM-THREADS", "STATE-THREADS", "RESULT-REUSED")
_CAUSES = ("BUILD", "DISPATCH", "RESULT-DECLARED", *MEMORY, *RACES)


@dataclass(frozen=True)
class Sample:
    """Cases of one check with something in common.

    Attributes:
        cohort: the family of the cases: ``normal``, ``registered``, ``NaN``, …
        dtype: the generic dtype; empty where every dtype is fixed.
        elements: number of elements of the largest case; the cases of one sample are between two
            powers of two.
        error: the largest error in units of the tolerance; `None` where nothing was compared.
    """

    cohort: str
    dtype: str
    elements: int
    cases: int
    error: float | None = None


@dataclass(frozen=True)
class Row:
    """One check of one kernel of one operator.

    Attributes:
        operator: ``namespace::name``.
        error: the largest error in units of the tolerance; `None` where nothing was compared.
        message: the failure, or the reason why the check was cut short, does not apply or did not
            run.
        case: the smallest failing case; empty otherwise.
        command: the command line that repeats the check; empty if none can.
        where: the location of the kernel's source.
        blame: the cause of a failure and its source location, if the cause is not the kernel.
        code: the failure code for ``opsmith explain``; empty for a row that did not fail.
        samples: the cases that ran.
        snippet: Python code that calls operator and reference with the failing case; empty if there
            is none.
        timings: what `seconds` were spent on, by the kinds of `stopwatch.KINDS`; the rest as "".
    """

    operator: str
    kernel: str
    check: str
    status: Status
    cases: int = 0
    error: float | None = None
    seconds: float = 0.0
    message: str = ""
    case: str = ""
    notes: tuple[str, ...] = ()
    command: str = ""
    where: str = ""
    blame: str = ""
    code: str = ""
    samples: tuple[Sample, ...] = ()
    snippet: str = ""
    timings: Mapping[str, float] = field(default_factory=dict, compare=False)

    @classmethod
    def revive(cls, plain: Mapping[str, Any]) -> Row:
        """Rebuild a row from its `dataclasses.asdict` form, possibly decoded from JSON.

        JSON has no infinity, so that an infinite error may have come as ``"infinite"``.
        """
        own = dict(plain)
        own["notes"] = tuple(own["notes"])
        samples = [dict(sample) for sample in own["samples"]]
        for one in (own, *samples):
            one["error"] = math.inf if one["error"] == "infinite" else one["error"]
        own["samples"] = tuple(Sample(**sample) for sample in samples)
        return cls(**own)

    def explain(self) -> str:
        """Describe a failure in full: its message, smallest case, and command to repeat it."""
        verb = "was cut short" if self.status == "cut short" else "failed"
        lines = [f"{self.operator}: check {self.check!r} {verb} for the {self.kernel!r} kernel."]
        lines += [f"  {line}" for line in self.message.splitlines()]
        if self.case:
            lines.append(f"  smallest case: {self.case}")
        lines += [f"  note: {note}" for note in self.notes]
        if self.blame or self.where:
            lines.append(f"  {self.blame or f'kernel: {self.where}'}")
        if self.code:
            lines.append(f"  explain: opsmith explain {self.code}")
        if self.command:
            lines.append(f"  repeat: {self.command}")
        if self.snippet:
            # The snippet is not indented, so that it can be pasted.
            lines += ["  in Python:", "", self.snippet]
        return "\n".join(lines)


@dataclass
class Results:
    """Every row of one run.

    Attributes:
        rows: the rows in the order in which they ran.
        elapsed: duration of the run in seconds, with some rows in parallel; 0 if it is unknown.
        left_out: a row with the status *not run* for each check that the selection left out.
        allow_cut_short: whether a run with checks that were cut short counts as complete.
        without_kernel: the operators that have no kernel, so that their references were checked.
    """

    rows: list[Row] = field(default_factory=list)
    seed: int = 0
    elapsed: float = 0.0
    left_out: list[Row] = field(default_factory=list)
    allow_cut_short: bool = False
    without_kernel: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Return whether every operator was checked, and no check failed or was cut short."""
        return self.outcome == "passed"

    @property
    def outcome(self) -> Outcome:
        """Return the outcome: *incomplete* if no check failed, but a required one did not run."""
        if self.failures:
            return "failed"
        return "incomplete" if any(self.gaps()) else "passed"

    @property
    def unchecked(self) -> dict[str, str]:
        """Return the operators of which no kernel was looked at: what was not, and why."""
        found = {}
        for operator in dict.fromkeys(row.operator for row in self.rows):
            rows = [row for row in self.rows if row.operator == operator]
            # A kernel that was only built is not checked, unless only the build was requested.
            rows = [row for row in rows if row.check not in _COMPILING] or rows
            kernels = [row for row in rows if row.kernel != _REFERENCE] or rows
            if all(row.status in UNTRIED for row in kernels):
                looked = any(row.status not in UNTRIED for row in rows)
                what = "no kernel was looked at" if looked else "nothing was checked"
                reasons = dict.fromkeys(row.message.partition("\n")[0] for row in kernels)
                found[operator] = f"{what}: {'; '.join(reasons)}"
        return found

    @property
    def failures(self) -> list[Row]:
        """Return the rows that failed, of each kernel those first that tell the cause of others."""
        return [
            row
            for _, _, rows in self.groups()
            for row in sorted(rows, key=turn)
            if row.status == "failed"
        ]

    def explain(self) -> str:
        """Describe all failures in full, and why the run is incomplete; empty if it passed."""
        return "\n\n".join([*(row.explain() for row in self.failures), *self.gaps()])

    def gaps(self) -> Iterator[str]:
        """Yield a line for each reason why the run is incomplete."""
        if not self.rows:
            every = ", ".join(dict.fromkeys(row.operator for row in self.left_out))
            about = f"what was asked for is about no kernel of {every}"
            yield f"nothing was checked: {about if every else 'there is no operator'}"
        for operator, reason in self.unchecked.items():
            yield f"{operator}: {reason}"
        for operator, kernel, rows in () if self.allow_cut_short else self.groups():
            names = [row.check for row in rows if row.status == "cut short"]
            if names:
                yield (
                    f"{operator}: of the {kernel!r} kernel, {', '.join(names)} could not try "
                    "enough: give more (--seconds), or take that for passed (--allow-cut-short)"
                )

    def remarks(self) -> Iterator[str]:
        """Yield what has no kernel, what is from before, how many checks were left out."""
        for operator in self.without_kernel:
            yield f"{operator} has no kernel: its reference was checked"
        before = [row.check for row in self.rows if FROM_BEFORE in row.notes]
        if before:
            yield f"from before, since nothing that they rest on has changed: {', '.join(before)}"
        names = {row.check for row in self.left_out} - {row.check for row in self.rows}
        if not names:
            return
        files = {row.command.partition(" --check ")[0] for row in self.rows if row.command}
        plural = "check was" if len(names) == 1 else "checks were"
        line = f"{len(names)} {plural} not asked for."
        yield "\n  ".join([f"{line} To run all:", *sorted(files)]) if files else line

    def raise_failures(self) -> None:
        """Raise an exception if a check failed, or if the run is incomplete.

        Raises:
            CheckError: the run did not pass; the message contains all failures in full.
        """
        __tracebackhide__ = True  # pytest shows the caller
        if not self.ok:
            raise CheckError(self.explain())

    def summary(self) -> str:
        """Return one line with the number of checks by status, of cases, and the duration."""
        counts = Counter(row.status for row in self.rows)
        operators = len({row.operator for row in self.rows})
        told = ", ".join(f"{counts[one]} {one}" for one in get_args(Status) if counts[one])
        total = self.elapsed or sum(row.seconds for row in self.rows)
        cases = sum(row.cases for row in self.rows)
        what = f"{operators} operator{'s' * (operators != 1)}: {told or 'nothing ran'}"
        ran = {row.check for row in self.rows}
        every = ran | {row.check for row in self.left_out}
        part = "" if ran == every else f"{len(ran)} of {len(every)} checks, "
        return f"{what}; {part}{cases} cases, {total:.0f} s"

    def groups(self, *, left_out: bool = False) -> Iterator[tuple[str, str, list[Row]]]:
        """Yield the rows by operator and kernel.

        Args:
            left_out: whether to include the rows of checks that were left out.
        """
        found: dict[tuple[str, str], list[Row]] = {}
        for row in (*self.rows, *(self.left_out if left_out else ())):
            found.setdefault((row.operator, row.kernel), []).append(row)
        for (operator, kernel), rows in found.items():
            yield operator, kernel, rows


def turn(row: Row) -> int:
    """Return the place of a row's failure among those of its kernel."""
    code = row.code.removeprefix("OPS-")
    found = (place for place, cause in enumerate(_CAUSES) if code.startswith(cause))
    return next(found, len(_CAUSES))


def show_error(error: float | None) -> str:
    """Format an error in units of the tolerance in at most five characters."""
    if error is None:
        return ""
    if error >= 1000:
        return ">999"
    if error == 0:
        return "0"
    if error < 0.001:
        return "<.001"
    return f"{error:.1g}" if error < 0.01 else f"{error:.2g}"
