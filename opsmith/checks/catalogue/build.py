"""Check that a compiled kernel builds, loads and registers."""

from __future__ import annotations

from opsmith.checks.cases.failure import Failure
from opsmith.checks.cases.subject import Subject, subjects_of
from opsmith.checks.protocol import define_check
from opsmith.checks.trial import Trial
from opsmith.errors import OpsmithError
from opsmith.operators import Operator


def _compiled(operator: Operator) -> list[Subject]:
    return [s for s in subjects_of(operator) if s.implementation.source]


@define_check(
    "build",
    "the kernel compiles, links and loads",
    subjects=_compiled,
    order=0,
    time_limit=10.0,
    samples=False,
    runtime="kernel alone",
    calls=False,
)
def build(trial: Trial) -> None:
    """Build the kernel; all other checks of it wait for this one."""
    try:
        trial.operator.build(trial.subject.device)
    except OpsmithError as error:
        raise Failure(str(error), code="OPS-BUILD-FAILED") from error
    generic = trial.signature.generic
    missing = (
        [name for name in generic.names if name not in trial.subject.dtypes] if generic else []
    )
    if missing:
        trial.notes.append(f"not compiled for {', '.join(missing)}")
