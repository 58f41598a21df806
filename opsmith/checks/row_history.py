"""Decide by a kernel's finished rows which of its further ones need not run, or say the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from opsmith.checks.cases.failure import LIFELESS
from opsmith.checks.cases.subject import Subject
from opsmith.checks.protocol import Check
from opsmith.checks.report.rows import Row
from opsmith.checks.trial.case_source import REFUSES_ALL
from opsmith.checks.workers.schedule import Planned

#: The message of a kernel's other rows if its build failed, since the build is not tried again.
NOT_BUILT = "not built"
#: Checks that sample every call that the declaration allows; if they find no case, no check does.
_DRAW_ALL = ("dispatch", "reference")
#: After this many checks of a kernel hung, its other checks are not run.
_HANGS = 3


@dataclass
class History:
    """The results of a kernel's checks so far which decide whether its other checks run.

    Attributes:
        broken: whether the kernel does not build.
        caseless: the check that found no arguments that the reference accepts.
        failed: the first check that failed.
        lifeless: the check that tells how every call of the kernel ends.
        failing: the checks in which a call failed.
        hung: the checks that hung.
    """

    broken: bool = False
    caseless: str = ""
    failed: str = ""
    lifeless: str = ""
    failing: list[str] = field(default_factory=list)
    hung: list[str] = field(default_factory=list)

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
        return ""

    def learn(self, row: Row) -> None:
        """Update the history with a finished row."""
        self.failed = self.failed or row.check * (row.status == "failed")
        self.broken |= row.check == "build" and row.status == "failed"
        if row.check in _DRAW_ALL and row.code == "OPS-CASES-NONE":
            self.caseless = row.check
        if row.code.startswith("OPS-CALL-"):
            self.failing.append(row.check)
            if LIFELESS in row.message:
                self.lifeless = self.failing[0]

    def settle(self, row: Row, check: Check, subject: Subject) -> Row:
        """Return a finished row, as one that did not run if it repeats what is told."""
        repeats = self.lifeless not in ("", row.check) and row.status == "failed"
        why = self.obstacle(check) if repeats and row.check != "dispatch" else ""
        return not_run(check, subject, why) if why else row


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
    """Keeps the first of a kernel's rows which report the same: no case, or no call that returns.

    `History` skips the rows that run after the first one, but not the rows that run in parallel.
    """

    def __init__(
        self, plan: Sequence[Planned], histories: Mapping[tuple[str, str], History]
    ) -> None:
        self._plan, self._histories = plan, histories
        self._told: dict[tuple[str, str], str] = {}

    def settle(self, position: int, row: Row) -> Row:
        """Return the row, or a row that was not run if an earlier row has reported the same."""
        subject, check = self._plan[position]
        row = self._histories[kernel_of(subject)].settle(row, check, subject)
        if row.code != "OPS-CASES-NONE" or not row.message.startswith(REFUSES_ALL):
            return row
        first = self._told.setdefault((row.operator, row.kernel), row.check)
        return row if first == row.check else not_run(check, subject, _caseless(first))


def _caseless(check: str) -> str:
    """Explain that a check is not run after another check found no case."""
    return f"not run, since {check} found no arguments that the reference accepts"


def failed(histories: Mapping[tuple[str, str], History], operator: str) -> str:
    """Return the first check of an operator that failed; empty if none has."""
    found = (one.failed for (name, _), one in histories.items() if name == operator)
    return next(filter(None, found), "")


def kernel_of(subject: Subject) -> tuple[str, str]:
    """Return the names of an operator and its kernel."""
    return subject.operator.name, subject.kernel
