"""The rows of a run, and what they come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from opsmith.errors import CheckError

Status = Literal["passed", "failed", "cut short", "not applicable", "not run"]
Outcome = Literal["passed", "failed", "incomplete"]
#: What rows say that tried nothing.
UNTRIED: tuple[Status, ...] = ("not applicable", "not run")
#: Begins the note on samples that the reference did not take.
REFUSED = "the reference refused"


@dataclass(frozen=True)
class Sample:
    """Cases of one check with something in common.

    Attributes:
        cohort: the family that they were drawn from: ``normal``, ``registered``, ``NaN``, …
        dtype: their generic dtype; empty where every dtype is fixed.
        elements: how many the tensors of the largest of them have; those of one sample lie between
            two powers of two.
        cases: how many there were.
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
        kernel: which of its kernels.
        check: the check's name.
        status: what came out.
        cases: how many cases ran.
        error: the largest error in units of the tolerance; `None` where nothing was compared.
        seconds: how long it took.
        message: what failed, or why the check was cut short, does not apply or did not run.
        case: the smallest case that fails; empty otherwise.
        notes: what else is worth knowing.
        command: repeats this check; empty where no command can.
        where: the kernel's source.
        blame: what a failure is about, and where it is written, if that is not the kernel.
        code: what kind of failure it is, as ``opsmith explain`` takes it; empty where none is.
        samples: which cases ran.
        snippet: Python that calls operator and reference with the case; empty where there is none.
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

    @classmethod
    def revive(cls, plain: Mapping[str, Any]) -> Row:
        """A row from what `dataclasses.asdict` made of it, through JSON perhaps."""
        own = dict(plain)
        own["notes"] = tuple(own["notes"])
        own["samples"] = tuple(Sample(**sample) for sample in own["samples"])
        return cls(**own)

    def explain(self) -> str:
        """Say in full what is wrong, the smallest case that shows it, how to repeat it."""
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
            # At the margin, so that it can be pasted.
            lines += ["  in Python:", "", self.snippet]
        return "\n".join(lines)


@dataclass
class Results:
    """Every row of one run.

    Attributes:
        rows: in the order in which they were run.
        seed: what the sampling started from.
        elapsed: the seconds that the run took, some rows side by side; 0 where nobody measured.
        left_out: a row, *not run*, for each check that a run without a selection has beside these.
        allow_cut_short: whether the run is complete where checks were cut short.
    """

    rows: list[Row] = field(default_factory=list)
    seed: int = 0
    elapsed: float = 0.0
    left_out: list[Row] = field(default_factory=list)
    allow_cut_short: bool = False

    @property
    def ok(self) -> bool:
        """Whether something was checked of every operator, nothing failed or was cut short."""
        return self.outcome == "passed"

    @property
    def outcome(self) -> Outcome:
        """What came out: *incomplete* where nothing failed, and not all that counts ran."""
        if self.failures:
            return "failed"
        return "incomplete" if any(self.gaps()) else "passed"

    @property
    def unchecked(self) -> dict[str, str]:
        """The operators of which nothing was checked, each with the reason."""
        found = {}
        for operator in dict.fromkeys(row.operator for row in self.rows):
            rows = [row for row in self.rows if row.operator == operator]
            # A kernel that was built and never called is not checked, unless no more was asked for.
            rows = [row for row in rows if row.check != "build"] or rows
            if all(row.status in UNTRIED for row in rows):
                found[operator] = "; ".join(dict.fromkeys(row.message for row in rows))
        return found

    @property
    def failures(self) -> list[Row]:
        """The rows that failed."""
        return [row for row in self.rows if row.status == "failed"]

    def explain(self) -> str:
        """All failures in full, and why the run is incomplete; empty if nothing is amiss."""
        return "\n\n".join([*(row.explain() for row in self.failures), *self.gaps()])

    def gaps(self) -> Iterator[str]:
        """Say why the run is incomplete, a line for each reason."""
        if not self.rows:
            yield "nothing was checked: there is no operator, or no check of one"
        for operator, reason in self.unchecked.items():
            yield f"{operator}: nothing was checked: {reason}"
        for operator, kernel, rows in () if self.allow_cut_short else self.groups():
            names = [row.check for row in rows if row.status == "cut short"]
            if names:
                yield (
                    f"{operator}: of the {kernel!r} kernel, {', '.join(names)} had no time to try "
                    "enough: give more (--seconds), or take that for passed (--allow-cut-short)"
                )

    def raise_failures(self) -> None:
        """Raise if something failed, or the run is incomplete.

        Raises:
            CheckError: with all failures in full.
        """
        __tracebackhide__ = True  # pytest shows the caller
        if not self.ok:
            raise CheckError(self.explain())

    def summary(self) -> str:
        """One line: how many checks passed, failed, did not apply, and how many ran of all."""
        counts = Counter(row.status for row in self.rows)
        operators = len({row.operator for row in self.rows})
        parts = [f"{counts[status]} {status}" for status in get_args(Status) if counts[status]]
        total = self.elapsed or sum(row.seconds for row in self.rows)
        cases = sum(row.cases for row in self.rows)
        plural = "operator" if operators == 1 else "operators"
        ran = {row.check for row in self.rows}
        every = ran | {row.check for row in self.left_out}
        part = "" if ran == every else f"{len(ran)} of {len(every)} checks, "
        return f"{operators} {plural}: {', '.join(parts)}; {part}{cases} cases, {total:.0f} s"

    def groups(self, *, left_out: bool = False) -> Iterator[tuple[str, str, list[Row]]]:
        """Give the rows by operator and kernel.

        Args:
            left_out: whether those of `left_out` are among them.
        """
        found: dict[tuple[str, str], list[Row]] = {}
        for row in (*self.rows, *(self.left_out if left_out else ())):
            found.setdefault((row.operator, row.kernel), []).append(row)
        for (operator, kernel), rows in found.items():
            yield operator, kernel, rows


def show_error(error: float | None) -> str:
    """An error in units of the tolerance, short."""
    if error is None:
        return ""
    if error >= 1000:
        return ">999"
    if error == 0:
        return "0"
    if error < 0.001:
        return "<.001"
    return f"{error:.1g}" if error < 0.01 else f"{error:.2g}"
