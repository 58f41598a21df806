"""Prove an operator: sample cases, compare with the reference, report.

::

    report = opsmith.checks.run([my_op])
    print(report.ok, report.explain())

Importing this package is cheap; hypothesis and the checks are imported by the first `run`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opsmith.checks.report.rows import Row
from opsmith.checks.run_report import Report
from opsmith.errors import MissingDependencyError

if TYPE_CHECKING:
    from opsmith.checks.cases.failure import Failure, Inapplicable
    from opsmith.checks.numerics.oracle import RefusedError
    from opsmith.checks.protocol import QUICK, Check, all_checks, define_check
    from opsmith.checks.runner import run
    from opsmith.checks.trial.trial import Trial

__all__ = [
    "QUICK",
    "Check",
    "Failure",
    "Inapplicable",
    "RefusedError",
    "Report",
    "Row",
    "Trial",
    "all_checks",
    "define_check",
    "run",
]

_MODULES = {
    "run": "runner",
    "Trial": "trial.trial",
    "RefusedError": "numerics.oracle",
    **dict.fromkeys(("Failure", "Inapplicable"), "cases.failure"),
}


def __getattr__(name: str) -> Any:
    import importlib

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import hypothesis  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            "checking needs the package hypothesis: pip install 'opsmith[check]'"
        ) from error
    module = importlib.import_module(f"{__name__}.{_MODULES.get(name, 'protocol')}")
    return getattr(module, name)
