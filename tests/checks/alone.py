"""A row of a kernel that the harness calls, without the library by which PyTorch calls it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from opsmith import Operator
from opsmith.checks.cases.settings import Settings
from opsmith.checks.protocol import selected
from opsmith.checks.report.rows import Row
from opsmith.checks.runner import run_check


def row_alone(operator: Operator, name: str, **settings: Any) -> Row:
    """Run a check of one kernel in this process.

    `checks.run` has the row `build` before it, which compiles the kernel and an adapter for
    PyTorch: twice as much as the harness needs, and the row itself calls none of it.
    """
    (check,) = selected([name])
    (subject,) = check.subjects(operator)
    alone = replace(check, calls=False)
    return run_check(alone, subject, Settings(**settings), lambda *_: None, {})
