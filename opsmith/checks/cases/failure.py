"""The exceptions by which a check says that something does not hold, or does not apply."""

from __future__ import annotations

from opsmith.checks.cases.case import Case

#: What is wrong where a result does not stay what it was.
CHANGED = (
    "the result of an earlier call changed afterwards: it lies in memory that the kernel uses "
    "again, or that is an argument's"
)


class Failure(Exception):
    """Something that must hold does not.

    Attributes:
        case: the arguments of the call; `None` where no single call shows it.
        run_with: what an exported model was run with, where its sizes may change and `case` is what
            it was exported with; `None` where none may.
        beside: those of a second call that it takes; `None` where it takes none.
        code: what kind of failure it is, for programs: see `opsmith.checks.report.failure_codes`.
        blame: what it is about, and where that is written, if that is not the kernel.
        crashed: whether the process that the kernel ran in ended.
        final: whether a search for a smaller case cannot help.
    """

    def __init__(
        self, message: str, case: Case | None = None, *, code: str = "OPS-CHECK-OWN"
    ) -> None:
        super().__init__(message)
        self.case = case
        self.run_with: Case | None = None
        self.beside: Case | None = None
        self.code = code
        self.blame = ""
        self.crashed = self.final = False


class Inapplicable(Exception):
    """The check has nothing to say about this operator and kernel; the message says why."""
