"""Check that a compiled kernel builds, loads and registers."""

from __future__ import annotations

import contextlib

from opsmith.checks.cases.failure import Failure
from opsmith.checks.cases.subject import subjects_of
from opsmith.checks.protocol import define_check
from opsmith.checks.trial.trial import Trial
from opsmith.errors import OpsmithError
from opsmith.operators.defined import DefinedOperator


@define_check(
    "build",
    "the kernel compiles, links and loads",
    subjects=lambda operator: [s for s in subjects_of(operator) if s.implementation.source],
    order=0,
    time_limit=10.0,
    samples=False,
    runtime="kernel alone",
    calls=False,
)
def build(trial: Trial) -> None:
    """Build the kernel; all other checks of it wait for this one."""
    operator, device = trial.operator, trial.subject.device
    try:
        trial.subject.build()
    except OpsmithError as error:
        raise Failure(str(error), code="OPS-BUILD-FAILED") from error
    if isinstance(operator, DefinedOperator) and operator.declared_backward is not None:
        # Otherwise the first gradient would build it, within the time limit of a call. If it does
        # not compile, its own row says so.
        with contextlib.suppress(OpsmithError):
            operator.declared_backward.backward.build(device)
    generic = trial.signature.generic
    missing = (
        [name for name in generic.names if name not in trial.subject.dtypes] if generic else []
    )
    if missing and not trial.subject.dtypes:
        raise Failure(
            f"compiled for {', '.join(trial.subject.implementation.dtypes)}, and for none of "
            f"{', '.join(missing)}, which the declaration has. For complex tensors, "
            "OPSMITH_KERNEL names the dtype of a part: float, double.",
            code="OPS-BUILD-FAILED",
        )
    if missing:
        trial.notes.append(f"not compiled for {', '.join(missing)}")
