"""Decide by a kernel's finished rows which of its further ones need not run, or say the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from opsmith.checks.cases.failure import HURRIED, LIFELESS, SIZES_TOLD
from opsmith.checks.cases.subject import Subject
from opsmith.checks.protocol import PLAIN_CALLS, Check
from opsmith.checks.report import rows
from opsmith.checks.report.rows import MEMORY, RACES, Row
from opsmith.checks.trial.case_source import REFUSES_ALL
from opsmith.checks.workers.schedule import Planned, kernel_of

#: The message of a kernel's other rows if its build failed, since the build is not tried again.
NOT_BUILT = "not built"
#: Checks that sample every call that the declaration allows; if they find no case, no check does.
_DRAW_ALL = ("dispatch", "reference")
#: After this many checks of a kernel hung, its other checks are not run.
_HANGS = 3
#: The codes of a plain call that is wrong, and those of a call that is wrong under some condition.
_RESULTS = ("VALUE-WRONG", "RESULT-COUNT", "RESULT-SHAPE")
_WRONG = (*_RESULTS, "CALL-", "STATE-EARLIER", "DETERMINISM-REPEAT")
_CONDITIONAL = ("VALUE-", "SIZE-", "LAYOUT-", "ARGUMENT-", "STATE-MODE", "GRADIENT-STRIDE")
#: The codes that several runtimes, or several parts of a declaration, give for different causes.
_APART = ("TARGET-", "COMPILE-", "EXPORT-", "SHARDING-", "VALIDATION-", "CHECK-", "OPCHECK-")


@dataclass
class History:
    """The results of a kernel's checks so far which decide whether its other checks run.

    Attributes:
        broken: whether the kernel does not build.
        caseless: the check that found no arguments that the reference accepts.
        failed: the rows that failed, as they were before they were settled.
        lifeless: the check that tells how every call of the kernel ends.
        hung: the checks that hung.
    """

    broken: bool = False
    caseless: str = ""
    failed: list[Row] = field(default_factory=list)
    lifeless: str = ""
    hung: list[str] = field(default_factory=list)

    @property
    def first(self) -> str:
        """The check that tells the first cause of the kernel's failures; empty if none failed."""
        return min(self.failed, key=turn).check if self.failed else ""

    def obstacle(self, check: Check) -> str:
        """Return the reason not to run a further check; empty if it is to run."""
        # `bounds` may tell why, and a check with a flag was asked for.
        if self.lifeless and check.calls and not check.flag and check.name != "bounds":
            return f"not run, since no call returns: see {self.lifeless}"
        if self.broken:
            return NOT_BUILT
        if self.caseless:
            return _caseless(self.caseless)
        if len(self.hung) >= _HANGS:
            return f"not run, since {', '.join(self.hung)} hung. To run it alone: --check NAME"
        needed = [row for row in self.failed if row.check in check.needs and _is_plain(row)]
        causes = [row for row in needed if not self._causes(row, ())]
        return f"not run because of {min(causes, key=turn).check}" if causes else ""

    def learn(self, row: Row) -> None:
        """Update the history with a finished row."""
        if row.status == "failed":
            self.failed.append(row)
        self.broken |= row.check == "build" and row.status == "failed"
        if row.check in _DRAW_ALL and row.code == "OPS-CASES-NONE":
            self.caseless = row.check
        if LIFELESS in row.message:
            self.lifeless = next(
                one.check for one in self.failed if one.code.startswith("OPS-CALL-")
            )

    def settle(self, row: Row, check: Check, subject: Subject, before: Sequence[str]) -> Row:
        """Return a row that failed, as one that did not run if another one tells its cause.

        Args:
            before: the checks that come earlier; what a later one finds is no cause of this one's.
        """
        if self.lifeless not in ("", row.check) and check.name != "dispatch":
            why = self.obstacle(check)
            return not_run(check, subject, why) if why else row
        causes = self._causes(row, before)
        if not causes:
            return row
        return not_run(check, subject, f"says no more than {min(causes, key=turn).check}")

    def _causes(self, row: Row, before: Sequence[str]) -> list[Row]:
        return [
            one
            for one in self.failed
            if explains(one, row)
            and (one.check in before if turn(one) == turn(row) else turn(one) < turn(row))
            and one.check in (*before, *PLAIN_CALLS)
        ]


def not_run(check: Check, subject: Subject, why: str) -> Row:
    """Return the row of a check that is not run, with the reason."""
    return Row(
        operator=subject.operator.name,
        kernel=subject.kernel,
        check=check.name,
        status="not run",
        message=why,
        where=subject.implementation.where,
    )


class FirstToTell:
    """Keeps one of a kernel's rows for each cause, in the order of the plan.

    `History` skips the rows that run after the first one, but not the rows that run in parallel.
    """

    def __init__(
        self, plan: Sequence[Planned], histories: Mapping[tuple[str, str], History]
    ) -> None:
        self._plan, self._histories = plan, histories
        self._told: dict[tuple[str, str], str] = {}
        self._variants: dict[tuple[str, ...], str] = {}

    def settle(self, position: int, row: Row) -> Row:
        """Return the row, or a row that was not run if another row reports the same."""
        if row.status != "failed":
            return row
        subject, check = self._plan[position]
        kernel = kernel_of(subject)
        # Rows that failed in the last run may run first, which decides nothing about causes.
        own = (c for other, c in self._plan if kernel_of(other) == kernel)
        before = [c.name for c in own if (c.order, c.name) < (check.order, check.name)]
        row = self._histories[kernel].settle(row, check, subject, before)
        if row.status == "failed" and row.kernel in subject.operator.variants:
            told = (row.operator, subject.device, row.check, row.code)
            other = self._variants.setdefault(told, row.kernel)
            if other != row.kernel:
                return not_run(check, subject, f"says the same as {check.name} of {other}")
        if row.code != "OPS-CASES-NONE" or not row.message.startswith(REFUSES_ALL):
            return row
        first = self._told.setdefault((row.operator, row.kernel), row.check)
        return row if first == row.check else not_run(check, subject, _caseless(first))


def _caseless(check: str) -> str:
    """Explain that a check is not run after another check found no case."""
    return f"not run, since {check} found no arguments that the reference accepts"


def failed(histories: Mapping[tuple[str, str], History], operator: str) -> str:
    """Return the check that tells the first cause of an operator's failures; empty if none has."""
    found = (one.first for (name, _), one in histories.items() if name == operator)
    return next(filter(None, found), "")


def turn(row: Row) -> tuple[int, bool]:
    """Return the place of a row's failure among those of its kernel, the cause of others first."""
    # `reference` tries most cases, and tells the smallest, unless it had little time for each.
    hurried = LIFELESS in row.message or HURRIED in row.message
    return rows.turn(row), row.check != "reference" or hurried


def _is_plain(row: Row) -> bool:
    """Return whether a row fails for plain arguments, so that a call in another way fails too."""
    some_sizes = _is(row, "CALL-") and f"\n{SIZES_TOLD}" in row.message
    return not some_sizes and (_is(row, *_WRONG) or not _is(row, *_CONDITIONAL))


def explains(cause: Row, row: Row) -> bool:
    """Return whether a row's failure is the same as that of one before, or follows from it."""
    if row.blame or cause.blame:
        return row.blame == cause.blame
    if cause.code == row.code:
        return not _is(row, *_APART)
    if _is(cause, "RESULT-DECLARED", *MEMORY, *RACES):
        return _is(row, *MEMORY, *RACES, *_WRONG, *_CONDITIONAL)
    if _is(row, "SIZE-"):
        return _is(cause, "VALUE-WRONG", "SIZE-")
    return _is(row, *_WRONG) and _is(cause, *_WRONG, *_CONDITIONAL)


def _is(row: Row, *beginnings: str) -> bool:
    return row.code.removeprefix("OPS-").startswith(beginnings)
