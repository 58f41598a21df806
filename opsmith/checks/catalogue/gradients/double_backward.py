"""Check that a gradient can be differentiated again, or raises an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.cases.case import Case
from opsmith.checks.catalogue.gradients.gradient import need_gradient
from opsmith.checks.numerics.gradients import (
    COTANGENTS,
    has_leaves,
    is_differentiable,
    leaves_of,
    stopped,
    with_copies_to_write,
)
from opsmith.checks.numerics.oracle import Expected, RefusedError, measure, narrow, widen
from opsmith.checks.numerics.perturbation import keep_indices
from opsmith.checks.protocol import define_check
from opsmith.checks.trial.trial import Trial
from opsmith.checks.trial.trial_gradients import random_cotangents
from opsmith.kernels import HOST
from opsmith.operators.core.arguments import flatten
from opsmith.signature import Signature

#: The name of the weights that the gradients are multiplied by before they are differentiated.
WEIGHTS = "the weights of the gradients"
EXAMPLES = 8


@define_check(
    "double-backward",
    "a gradient that is differentiated again gives the right second derivative, or raises",
    order=52,
    needs=("gradient",),
    runtime="autograd",
)
def double_backward(trial: Trial) -> None:
    """Test a hand-written backward whose operations autograd records."""
    need_gradient(trial)
    trial.need(
        trial.operator.rule.backward is not None,
        'no backward is written by hand: second derivatives of "reference" are PyTorch\'s own, '
        "and `gradcheck` tries them in float64",
    )
    raised = compared = 0

    def one(case: Case) -> None:
        nonlocal raised, compared
        trial.accept(case)
        given = weighted(trial, case)
        truth = true_second_derivatives(trial, given)
        if truth is None:
            return
        try:
            found = differentiate_twice(
                trial.call, trial.signature, {**given, **trial.make(case)}, trial.subject.device
            )
        except CannotError:
            raised += 1
            return
        compared += 1
        trial.compare(
            list(found.values()),
            truth,
            "the gradient, differentiated again",
            code="OPS-GRADIENT-SECOND",
        )

    trial.each(one, dtypes=(trial.subject.favourite,), examples=EXAMPLES, most=3, keep=has_slopes)
    trial.need(raised or compared, "the reference has no second derivative to compare with")
    if raised:
        trial.notes.append("the gradient cannot be differentiated again, and raises")


def has_slopes(case: Case) -> bool:
    """Return whether some element can have a gradient, and all are finite: NaN has no slope."""
    return has_leaves(case) and all(
        bool(tensor.isfinite().all()) for _, tensor in case.tensors() if is_differentiable(tensor)
    )


class CannotError(Exception):
    """Raised if autograd reports that a function cannot be differentiated."""


def weighted(trial: Trial, case: Case) -> dict[str, Any]:
    """Return the arguments of a case, with incoming gradients and with weights of gradients."""
    return {
        **case.values,
        COTANGENTS: random_cotangents(trial, case),
        WEIGHTS: _weights(trial, case),
    }


def _weights(trial: Trial, case: Case) -> list[Tensor]:
    generator = torch.Generator().manual_seed(trial.settings.seed + 1)
    _, leaves = leaves_of(case.values, case.signature)
    drawn = []
    for leaf in leaves.values():
        wide = torch.complex128 if leaf.is_complex() else torch.float64
        drawn.append(torch.randn(leaf.shape, generator=generator, dtype=wide).to(leaf.dtype))
    return drawn


def differentiate_twice(
    call: Callable[[Mapping[str, Any]], Any],
    signature: Signature,
    given: Mapping[str, Any],
    device: str = HOST,
    bend: Callable[[Tensor], Tensor] = lambda output: output,
) -> dict[str, Tensor]:
    """Return the derivatives of the weighted gradients, by the names of their variables.

    Args:
        call: calls the operator, or its reference, with arguments by name.
        given: what `weighted` returns.
        bend: what is computed from each result before it is differentiated.
    """
    own = {name: value for name, value in given.items() if name in signature.by_name}
    arguments, leaves = leaves_of(own, signature)
    incoming = [one.detach().to(device).requires_grad_() for one in given[COTANGENTS]]
    arguments = with_copies_to_write(signature, arguments)
    results = flatten(signature, stopped(signature, call(arguments), arguments), arguments)
    outputs = [bend(result) for result in results if is_differentiable(result)]
    wanted = {f"the derivative by {name!r}": leaf for name, leaf in leaves.items()} | {
        f"the derivative by incoming gradient {n}": one for n, one in enumerate(incoming)
    }
    weights = [weight.to(device) for weight in given[WEIGHTS]]
    try:
        _accumulate(outputs, incoming, list(leaves.values()), weights)
    except Exception as error:
        raise CannotError from error
    return {
        name: torch.zeros_like(by) if by.grad is None else by.grad.to_dense()
        for name, by in wanted.items()
    }


def _accumulate(
    outputs: Sequence[Tensor],
    incoming: Sequence[Tensor],
    leaves: Sequence[Tensor],
    weights: Sequence[Tensor],
) -> None:
    """Add the second derivatives to the `grad` of every leaf and every incoming gradient."""
    recorded = [position for position, output in enumerate(outputs) if output.requires_grad]
    if not recorded:
        return
    firsts = torch.autograd.grad(
        [outputs[position] for position in recorded],
        leaves,
        [incoming[position].to(outputs[position].dtype) for position in recorded],
        create_graph=True,
        allow_unused=True,
    )
    pairs = [
        (first, weight.to(first.dtype))
        for first, weight in zip(firsts, weights, strict=True)
        if first is not None and first.requires_grad
    ]
    if pairs:
        # Not torch.autograd.grad: it runs only the nodes that lead to the requested tensors, and so
        # skips the node that `once_differentiable` adds in order to raise.
        torch.autograd.backward([first for first, _ in pairs], [weight for _, weight in pairs])


def true_second_derivatives(
    trial: Trial, given: Mapping[str, Any], bend: Callable[[Tensor], Tensor] = lambda output: output
) -> Expected | None:
    """Return the reference's derivatives in double precision; `None` if it has none."""
    operator = trial.operator
    names: list[str] = []

    def call(arguments: Mapping[str, Any]) -> Any:
        positional, keywords = operator.split(arguments)
        returned = operator.reference(*positional, **keywords)
        results = flatten(operator.signature, returned, arguments)
        if not any(result.requires_grad for result in results):
            raise CannotError  # autograd cannot follow the reference, which computes elsewhere
        return returned

    def evaluate(arguments: Mapping[str, Any]) -> list[Tensor]:
        arguments = keep_indices(operator.signature, given, arguments)
        found = differentiate_twice(call, operator.signature, arguments, bend=bend)
        names[:] = found
        return list(found.values())

    wide = {name: widen(value) for name, value in given.items()}
    own = {name: narrow(value) for name, value in given.items()}
    try:
        truth = measure(evaluate, wide, own)
    except RefusedError:
        return None
    truth.names, truth.derivative = list(names), True
    truth.undefined = [~value.isfinite() for value in truth.values]
    return truth
