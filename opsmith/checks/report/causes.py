"""Say which of a kernel's failures is the cause of others."""

from __future__ import annotations

from opsmith.checks.cases.failure import HURRIED, LIFELESS, SIZES_TOLD
from opsmith.checks.report import rows
from opsmith.checks.report.rows import MEMORY, RACES, Row

#: The codes of a plain call that is wrong, and those of a call that is wrong under some condition.
_RESULTS = ("VALUE-WRONG", "RESULT-COUNT", "RESULT-SHAPE")
_WRONG = (*_RESULTS, "CALL-", "STATE-EARLIER", "DETERMINISM-REPEAT")
_CONDITIONAL = ("VALUE-", "SIZE-", "LAYOUT-", "ARGUMENT-", "STATE-MODE", "GRADIENT-STRIDE")
#: The codes that several runtimes, or several parts of a declaration, give for different causes.
_APART = ("TARGET-", "COMPILE-", "EXPORT-", "SHARDING-", "VALIDATION-", "CHECK-", "OPCHECK-")


def turn(row: Row) -> tuple[int, bool]:
    """Return the place of a row's failure among those of its kernel, the cause of others first."""
    # `reference` tries most cases, and tells the smallest, unless it had little time for each.
    hurried = LIFELESS in row.message or HURRIED in row.message
    return rows.turn(row), row.check != "reference" or hurried


def is_plain(row: Row) -> bool:
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
