"""Check gradients inside nested transforms of `torch.func`, and plain autograd around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, jvp, vjp

from opsmith.checks.cases.case import Case
from opsmith.checks.cases.reference_call import run_reference
from opsmith.checks.cases.wanted import Wanted
from opsmith.checks.catalogue.gradients.double_backward import (
    EXAMPLES,
    WEIGHTS,
    CannotError,
    differentiate_twice,
    has_slopes,
    true_second_derivatives,
    weighted,
)
from opsmith.checks.catalogue.gradients.gradient import need_gradient
from opsmith.checks.numerics.comparison import compare
from opsmith.checks.numerics.gradients import (
    COTANGENTS,
    is_differentiable,
    leaves_of,
    rounding_of,
    stopped,
)
from opsmith.checks.numerics.oracle import widen
from opsmith.checks.numerics.perturbation import keep_indices
from opsmith.checks.protocol import PLAIN_CALLS, define_check
from opsmith.checks.trial.trial import Trial
from opsmith.operators.core.arguments import flatten, map_named_tensors

_Tensors = dict[str, Tensor]
_Bend = Callable[[Tensor], Tensor]
#: Tolerances below which an error may be what the operator itself loses by rounding.
_SLIGHT = 16


@define_check(
    "nested-gradients",
    "gradients inside nested torch.func, and autograd around it, are right or raise",
    order=53,
    needs=(*PLAIN_CALLS, "gradient", "double-backward"),
    runtime="autograd",
)
def nested_gradients(trial: Trial) -> None:
    """Compute the second derivative of each case by every nesting."""
    need_gradient(trial)
    trial.need(not trial.signature.mutated, "writes an argument, which torch.func refuses by name")
    compared = 0
    raised: list[str] = []
    disagreeing: list[str] = []

    def reference(arguments: Mapping[str, Any]) -> Any:
        return run_reference(trial.operator, arguments)[0]

    def one(case: Case) -> None:
        nonlocal compared
        trial.accept(case)
        given = weighted(trial, case)
        bends: tuple[_Bend, ...] = (_same, _bent)
        truths = {bend: true_second_derivatives(trial, given, bend) for bend in bends}
        for what, (nesting, bend) in _NESTINGS.items():
            truth = truths[bend]
            if truth is None:
                continue
            of_the_reference = _nested(trial, given, nesting, bend, reference)
            truth = replace(truth, formula=rounding_of(of_the_reference))
            made = {**given, **trial.make(case)}
            subject = _Gradient(trial, made, bend, trial.call)
            if nesting is not _vjp_of_vjp and subject.is_complex:
                continue  # torch.func.grad takes real results
            try:
                found = [one.to_dense() for one in nesting(subject)]
            except Exception:
                raised.append(what)
                continue
            compared += 1
            code = "OPS-GRADIENT-NESTED"
            error = compare(found, truth).error
            if error > 1 and (error < _SLIGHT or trial.operator.rule.reference):
                # Terms that cancel lose nothing in the reference's order, and here they may. Where
                # gradients follow from the reference, no formula is the author's.
                way = _nested(trial, given, nesting, bend, trial.call)
                truth = replace(truth, formula=rounding_of(way))
            if compare(found, truth).problem is not None:
                own = widen(of_the_reference(made))
                if compare(found, replace(truth, values=own)).problem is None:
                    disagreeing.append(what)
                    continue
                code = "OPS-GRADIENT-SECOND" if _is_wrong_twice(subject, truth) else code
            trial.compare(found, truth, what, code=code)

    # A loop in the reference has thousands of steps in each of four second derivatives.
    wanted, dtypes = Wanted(max_elements=256), (trial.subject.favourite,)
    trial.each(one, dtypes=dtypes, wanted=wanted, examples=EXAMPLES, most=3, keep=has_slopes)
    trial.need(raised or compared, "the reference has no second derivative to compare with")
    if raised:
        trial.notes.append(f"raises, as it may: {', '.join(dict.fromkeys(raised))}")
    if disagreeing:
        trial.notes.append(
            "the reference's own second derivatives disagree with each other: other ones than by "
            f"autograd, twice, come from {', '.join(dict.fromkeys(disagreeing))}"
        )


def _same(result: Tensor) -> Tensor:
    return result


def _bent(result: Tensor) -> Tensor:
    """Let second derivatives depend on a result too, smoothly, whatever its size."""
    return result if result.is_complex() else result.atan()


class _Gradient:
    """A case's gradient as a function of the arguments and of the incoming gradients."""

    def __init__(
        self,
        trial: Trial,
        given: Mapping[str, Any],
        bend: _Bend,
        call: Callable[[Mapping[str, Any]], Any],
    ) -> None:
        self.trial, self.given, self.bend, self.call = trial, given, bend, call
        self.own = {name: value for name, value in given.items() if name in trial.signature.by_name}
        _, leaves = leaves_of(self.own, trial.signature)
        device = trial.subject.device
        self.point = {name: leaf.detach() for name, leaf in leaves.items()}
        self.incoming = [one.to(device) for one in given[COTANGENTS]]
        weights = [weight.to(device) for weight in given[WEIGHTS]]
        self.weights = dict(zip(self.point, weights, strict=True))
        self.is_complex = any(one.is_complex() for one in (*self.point.values(), *self.incoming))

    def outputs(self, point: _Tensors) -> list[Tensor]:
        """Call the operator at another point, and bend its results."""
        signature = self.trial.signature
        arguments = map_named_tensors(self.own, lambda name, value: point.get(name, value))
        returned = stopped(signature, self.call(arguments), arguments)
        results = flatten(signature, returned, arguments)
        return [self.bend(result) for result in results if is_differentiable(result)]

    def value(self, point: _Tensors, incoming: list[Tensor]) -> Tensor:
        """Return the sum of the results, weighted by the incoming gradients."""
        pairs = zip(self.outputs(point), incoming, strict=True)
        return torch.stack([(output * one).sum() for output, one in pairs]).sum()

    def weigh(self, gradients: _Tensors) -> Tensor:
        """Return the weighted sum of gradients, whose derivative the nestings compute."""
        weighed = [(one * self.weights[name]).sum() for name, one in gradients.items()]
        return torch.stack(weighed).sum()

    @property
    def twice(self) -> tuple[_Tensors, list[Tensor]]:
        """Return copies of the arguments and incoming gradients that plain autograd records."""
        point = {name: one.clone().requires_grad_() for name, one in self.point.items()}
        return point, [one.clone().requires_grad_() for one in self.incoming]


def _grad_of_grad(subject: _Gradient) -> list[Tensor]:
    def slope(point: _Tensors, incoming: list[Tensor]) -> Tensor:
        return subject.weigh(grad(subject.value)(point, incoming))

    return _in_order(grad(slope, argnums=(0, 1))(subject.point, subject.incoming))


def _vjp_of_vjp(subject: _Gradient) -> list[Tensor]:
    def first(point: _Tensors, incoming: list[Tensor]) -> _Tensors:
        found: _Tensors = vjp(subject.outputs, point)[1](incoming)[0]
        return found

    return _in_order(vjp(first, subject.point, subject.incoming)[1](subject.weights))


def _autograd_of_grad(subject: _Gradient) -> list[Tensor]:
    point, incoming = subject.twice
    slope = subject.weigh(grad(subject.value)(point, incoming))
    leaves = [*point.values(), *incoming]
    if not slope.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    return list(torch.autograd.grad(slope, leaves, allow_unused=True, materialize_grads=True))


def _jvp_of_grad(subject: _Gradient) -> list[Tensor]:
    # Second derivatives are symmetric, so a step along the weights gives what grad of grad does.
    still = [torch.zeros_like(one) for one in subject.incoming]
    both = grad(subject.value, argnums=(0, 1))
    return _in_order(jvp(both, (subject.point, subject.incoming), (subject.weights, still))[1])


def _in_order(found: tuple[_Tensors, list[Tensor]]) -> list[Tensor]:
    return [*found[0].values(), *found[1]]


#: A straight result gives each backward a gradient that its own level does not record.
_NESTINGS: dict[str, tuple[Callable[[_Gradient], list[Tensor]], _Bend]] = {
    "torch.func.grad of grad": (_grad_of_grad, _same),
    "torch.func.vjp of vjp": (_vjp_of_vjp, _bent),
    "autograd of torch.func.grad": (_autograd_of_grad, _bent),
    "torch.func.jvp of grad": (_jvp_of_grad, _same),
}


def _nested(
    trial: Trial,
    given: Mapping[str, Any],
    nesting: Callable[[_Gradient], list[Tensor]],
    bend: _Bend,
    call: Callable[[Mapping[str, Any]], Any],
) -> Callable[[Mapping[str, Any]], list[Tensor]]:
    """Return a nesting around `call`, as a function of the arguments."""

    def evaluate(moved: Mapping[str, Any]) -> list[Tensor]:
        own = keep_indices(trial.signature, given, moved)
        with torch.enable_grad():
            return nesting(_Gradient(trial, own, bend, call))

    return evaluate


def _is_wrong_twice(subject: _Gradient, truth: Any) -> bool:
    """Return whether plain autograd differentiates the gradient as wrongly."""
    trial = subject.trial
    try:
        found = differentiate_twice(
            trial.call, trial.signature, subject.given, trial.subject.device, subject.bend
        )
    except CannotError:
        return False
    return compare(list(found.values()), truth).problem is not None
