"""Gradients of an operator and of its reference, for the checks that compare them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure
from opsmith.checks.cases.layouts import EXPANDED, LAYOUTS, make_constant
from opsmith.checks.numerics.oracle import Expected, measure, narrow, widen
from opsmith.operators import Operator
from opsmith.operators.core.arguments import flatten, is_float8, map_named_tensors, map_tensors
from opsmith.operators.core.torch_threads import threads
from opsmith.signature import Signature
from opsmith.signature.dtypes import FLOAT8

#: What incoming gradients are called among the arguments.
COTANGENTS = "the incoming gradients"


def has_gradient(operator: Operator) -> bool:
    """Whether a gradient is declared."""
    return operator.rule.backward is not None or operator.rule.reference


def leaves_of(
    arguments: Mapping[str, Any], signature: Signature, alone: str = ""
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """`arguments` with every floating tensor requiring a gradient, and those tensors by name.

    But for those that the declaration says no gradient reaches, or whose dtype carries none (it is
    asked of the declaration, since in double precision they would). Where `alone` names a tensor,
    no other requires a gradient.
    """
    leaves: dict[str, Tensor] = {}

    def is_stored(name: str) -> bool:
        type_ = signature.by_name[name].tensor_type
        return type_ is not None and set(type_.dtypes.names) <= set(FLOAT8)

    unreached = {name for name in arguments if is_stored(name)} | set(signature.nondifferentiable)

    def leaf(name: str, value: Tensor) -> Tensor:
        if name.partition("[")[0] in unreached or not is_differentiable(value):
            return value
        leaves[name] = value.detach().requires_grad_()
        return leaves[name]

    own = map_named_tensors(arguments, leaf)
    if alone:
        for name in set(leaves) - {alone}:
            leaves.pop(name).requires_grad_(False)
    return own, leaves


def has_leaves(case: Case) -> bool:
    """Whether an element of a case can have a gradient."""
    _, leaves = leaves_of(case.values, case.signature)
    return any(leaf.numel() for leaf in leaves.values())


def is_differentiable(tensor: Tensor) -> bool:
    """Whether a tensor's dtype can carry a gradient."""
    inexact = tensor.is_floating_point() or tensor.is_complex()
    return inexact and not is_float8(tensor.dtype)


def stopped(signature: Signature, returned: Any) -> Any:
    """Return what a reference returned, without a graph where results are `NonDifferentiable`."""
    results = signature.results
    if all(result.differentiable for result in results):
        return returned
    many = returned if len(results) > 1 else [returned]
    found = tuple(
        value if result.differentiable else map_tensors(value, Tensor.detach)
        for result, value in zip(results, many, strict=True)
    )
    return found if len(results) > 1 else found[0]


def arriving_layout(case: Case) -> str:
    """How the incoming gradients of a case lie in memory: each case has one of the layouts."""
    return LAYOUTS[int(case.digest[:4], 16) % len(LAYOUTS)]


def constant_where_expanded(cotangent: Tensor, layout: str) -> Tensor:
    """An incoming gradient, with equal values along the dimension that `layout` expands."""
    expands = layout == EXPANDED and cotangent.dim() and cotangent.numel()
    return make_constant(cotangent, 0) if expands else cotangent


@dataclass
class Backward:
    """What one forward and backward call gave."""

    results: list[Tensor]
    leaves: dict[str, Tensor]
    found: list[Tensor | None]

    def gradients(self) -> list[Tensor]:
        """The gradients, zero where autograd gave none."""
        return [
            torch.zeros_like(leaf) if grad is None else grad
            for leaf, grad in zip(self.leaves.values(), self.found, strict=True)
        ]


def require_unwritten(changed: Sequence[str]) -> None:
    """State that calling and going back changed nothing that was given.

    Args:
        changed: the tensors that it did change.

    Raises:
        Failure: there is one.
    """
    if not changed:
        return
    name = changed[0]
    incoming = name.startswith(COTANGENTS)
    raise Failure(
        "the backward wrote into the gradient that it was given"
        if incoming
        else f"argument {name!r} is another after the backward than before the call",
        code="OPS-GRADIENT-MUTATION",
    )


def differentiate(
    call: Callable[[Mapping[str, Any]], Any],
    signature: Signature,
    arguments: Mapping[str, Any],
    cotangents: Sequence[Tensor],
    *,
    alone: str = "",
    count: int,
) -> Backward:
    """Call an operator in this process, and differentiate its results.

    Args:
        call: takes arguments by name.
        signature: the operator's.
        arguments: by name.
        cotangents: a gradient for each floating result.
        alone: the only tensor that requires a gradient; all by default.
        count: with how many threads to go back.

    Raises:
        Failure: a floating result does not require a gradient.
    """
    arguments, leaves = leaves_of(arguments, signature, alone)
    results = flatten(signature, call(arguments), {})
    outputs = [result for result in results if is_differentiable(result)]
    if leaves and outputs and not any(output.requires_grad for output in outputs):
        raise Failure(
            "an argument requires a gradient, and no result does: it is lost silently",
            code="OPS-GRADIENT-LOST",
        )
    pairs = [
        (output, cotangent.to(output.device))
        for output, cotangent in zip(outputs, cotangents, strict=True)
        if output.requires_grad
    ]
    with threads(count):
        found = torch.autograd.grad(
            [output for output, _ in pairs],
            list(leaves.values()),
            [cotangent for _, cotangent in pairs],
            allow_unused=True,
        )
    return Backward(results, leaves, list(found))


def expected_gradients(
    operator: Operator,
    values: Mapping[str, Any],
    cotangents: Sequence[Tensor] | None = None,
    function: Callable[..., Any] | None = None,
    known: Mapping[str, Any] | None = None,
) -> Expected | None:
    """The gradients that the reference has in double precision.

    Args:
        operator: whose reference.
        values: the arguments by name.
        cotangents: a gradient for each floating result; by default the result itself.
        function: what is differentiated in the reference's place.
        known: see `expected_of`.

    Returns:
        They are in the order of `Backward.leaves`; `None` if the reference is not
        differentiable PyTorch.

    Raises:
        RefusedError: the reference does not take these arguments.
    """
    function = function or operator.reference
    names: list[str] = []

    def evaluate(given: Mapping[str, Any]) -> list[Tensor]:
        own = {k: v for k, v in given.items() if k != COTANGENTS}
        arguments, leaves = leaves_of(own, operator.signature)
        positional, keywords = operator.split(arguments)
        with torch.enable_grad():
            returned = stopped(operator.signature, function(*positional, **keywords))
            results = flatten(operator.signature, returned, {})
        outputs = [result for result in results if is_differentiable(result)]
        incoming = given.get(COTANGENTS, outputs)
        pairs = [
            (result, cotangent.detach().to(result.dtype))
            for result, cotangent in zip(outputs, incoming, strict=True)
            if result.requires_grad
        ]
        if not pairs:
            raise _NotDifferentiableError
        found = torch.autograd.grad(
            [result for result, _ in pairs],
            list(leaves.values()),
            [cotangent for _, cotangent in pairs],
            allow_unused=True,
        )
        names[:] = [f"the gradient of {name!r}" for name in leaves]
        return [
            torch.zeros_like(leaf) if grad is None else grad
            for leaf, grad in zip(leaves.values(), found, strict=True)
        ]

    given = dict(values)
    if cotangents is not None:
        given[COTANGENTS] = list(cotangents)
    own = {name: narrow(value) for name, value in given.items()}
    if known is not None:
        truth = Expected(**known, evaluate=evaluate, arguments=own)
    else:
        wide = {name: widen(value) for name, value in given.items()}
        try:
            evaluate(wide)
        except _NotDifferentiableError:
            return None
        except Exception:
            pass  # `measure` tries the case's own dtypes, and says what is wrong
        truth = measure(evaluate, wide, own)
        truth.names = list(names)
    truth.derivative = True
    # Nothing has a slope at NaN, and PyTorch's own operators give what comes.
    _, leaves = leaves_of({name: own[name] for name in values}, operator.signature)
    truth.undefined = [leaf.isnan() for leaf in leaves.values()]
    return truth


class _NotDifferentiableError(Exception):
    pass
