"""Compute the gradients of a trial's operator, and the right gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure
from opsmith.checks.cases.wanted import Wanted
from opsmith.checks.numerics import loop_sizes
from opsmith.checks.numerics.comparison import same_bits
from opsmith.checks.numerics.gradients import (
    COTANGENTS,
    Backward,
    differentiate,
    expected_gradients,
    is_differentiable,
    require_unwritten,
)
from opsmith.checks.numerics.oracle import Expected, RefusedError
from opsmith.checks.trial.trial import Trial
from opsmith.system.stopwatch import spending


def samples_for_gradients(trial: Trial) -> Wanted:
    """Return the samples of a check of gradients, and note the sizes that a loop keeps small.

    Right gradients of a reference that loops in Python are computed step by step, which takes
    seconds in large sizes.
    """
    if trial.cases.only_registered:
        return Wanted()
    most = loop_sizes.largest_sizes(trial.operator, trial.subject.favourite, by_steps=True)
    if most:
        trial.notes.append(f"{loop_sizes.described(most, 'samples')} cases")
    return Wanted(most=most)


def random_cotangents(trial: Trial, case: Case) -> list[Tensor]:
    """Return a random gradient for each floating result of `case`, in that result's dtype."""
    generator = torch.Generator().manual_seed(trial.settings.seed)
    with torch.no_grad():
        results = trial.run(trial.make(case))
    return [
        torch.randn(
            result.shape,
            generator=generator,
            dtype=torch.complex128 if result.is_complex() else torch.float64,
        ).to(result.dtype)
        for result in results
        if is_differentiable(result)
    ]


def run_backward(
    trial: Trial, case: Case, cotangents: Sequence[Tensor], function: Any = None, *, alone: str = ""
) -> Backward:
    """Call the operator and differentiate its results.

    Args:
        cotangents: a gradient for each floating result.
        function: the function to call with arguments by name; the operator by default.
        alone: the only tensor that requires a gradient; all by default.
    """
    try:
        return _run_backward(trial, case, cotangents, function, alone)
    except Exception:
        if function is None and true_gradients(trial, case, cotangents) is not None:
            _require_accepted(trial, case, cotangents, alone)
        raise


def _require_accepted(trial: Trial, case: Case, cotangents: Sequence[Tensor], alone: str) -> None:
    """Differentiate the reference by the same incoming gradients, in the same memory layout."""

    def reference(arguments: Mapping[str, Any]) -> Any:
        positional, keywords = trial.operator.split(arguments)
        return trial.operator.reference(*positional, **keywords)

    try:
        _run_backward(trial, case, cotangents, reference, alone)
    except Failure:
        pass
    except Exception as error:
        raise RefusedError(f"{type(error).__name__}: {error}") from None


@spending("calls")
def _run_backward(
    trial: Trial, case: Case, cotangents: Sequence[Tensor], function: Any, alone: str
) -> Backward:
    arguments = trial.make(case)
    if trial.kernel.caller is not None and function is None:
        trial.kernel.caller.raises = trial.attribution.raises
        return trial.kernel.caller.differentiate(
            trial.operator,
            arguments,
            cotangents,
            alone=alone,
            device=trial.subject.device,
            threads=trial.kernel.threads,
        )
    given = Case(case.signature, {**arguments, COTANGENTS: list(cotangents)}, {})
    tensors = dict(given.tensors())
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    backward = differentiate(
        function or trial.call,
        case.signature,
        arguments,
        cotangents,
        alone=alone,
        count=trial.kernel.threads,
    )
    require_unwritten(
        [name for name, tensor in tensors.items() if not same_bits([tensor], [before[name]])]
    )
    return backward


def true_gradients(
    trial: Trial,
    case: Case,
    cotangents: Sequence[Tensor],
    function: Callable[..., Any] | None = None,
) -> Expected | None:
    """Return the gradients of the reference of a trial's operator; see `expected_gradients`."""

    def compute(known: Mapping[str, Any] | None) -> Expected | None:
        return expected_gradients(trial.operator, case.values, cotangents, function, known)

    return compute(None) if function is not None else trial.truths.kept(case, compute, cotangents)
