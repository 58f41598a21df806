"""Compute forward-mode derivatives: the operator gives results, the reference their tangents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from opsmith.errors import DifferentiationError
from opsmith.operators.core.arguments import map_tensors
from opsmith.operators.dispatch.written_gradients import (
    functional_form,
    is_recorded,
    written_names,
)
from opsmith.signature import Signature

if TYPE_CHECKING:
    from opsmith.operators.core.operator import Operator


#: PyTorch has only this level. Compiled graphs enter it without setting PyTorch's Python variable.
_LEVEL = 0


def has_tangent(values: Sequence[Any]) -> bool:
    """Return whether a tensor among `values`, or in a list among them, carries a tangent."""
    for value in values:
        if isinstance(value, Tensor):
            if forward_ad.unpack_dual(value, level=_LEVEL).tangent is not None:
                return True
        elif isinstance(value, list | tuple) and has_tangent(value):
            return True
    return False


def reference_of(operator: Operator, args: Any, kwargs: Any) -> Callable[[], Any]:
    """Return a function that calls the reference with a call's arguments, which carry tangents.

    The function is for after the call, which validates the arguments; the reference does not.

    Raises:
        DifferentiationError: the operator has no derivative in forward mode.
    """
    if operator.signature.mutated:
        raise DifferentiationError(
            f"{operator.name}: writes into {written_names(operator)}, and such an operator has no "
            "forward-mode derivative, but an argument carries a tangent (jvp, jacfwd, hessian). "
            f"{functional_form(operator.signature)}"
        )
    if not operator.rule.reference:
        raise DifferentiationError(
            f"{operator.name}: has no forward-mode derivative (jvp, jacfwd, hessian). If its "
            'reference is differentiable PyTorch, declare it with autograd="reference"; a '
            "backward registered by hand is still used for reverse mode."
        )
    arguments = operator.arguments(args, kwargs)
    return lambda: operator.reference(**arguments)


def with_tangents(signature: Signature, returned: Any, dual: Any) -> Any:
    """Return an operator's results with the tangents of `dual`, its reference's results."""
    tangents = iter(flat_tangents(signature, dual))

    def add(tensor: Tensor) -> Tensor:
        tangent = next(tangents)
        return tensor if tangent is None else forward_ad.make_dual(tensor, tangent, level=_LEVEL)

    if len(signature.results) == 1:
        return map_tensors(returned, add)
    return tuple(map_tensors(value, add) for value in returned)


def flat_tangents(signature: Signature, dual: Any) -> tuple[Tensor | None, ...]:
    """Return the tangent of each tensor among a reference's results, of lists too.

    Without an argument on which it depends, a tangent is zero. Integers have none, and results that
    are declared `NonDifferentiable`.
    """
    many = dual if len(signature.results) > 1 else (dual,)
    return tuple(
        _tangent(tensor) if result.differentiable and is_recorded(tensor) else None
        for result, value in zip(signature.results, many, strict=True)
        for tensor in (value if isinstance(value, list | tuple) else (value,))
    )


def _tangent(dual: Tensor) -> Tensor:
    primal, tangent = forward_ad.unpack_dual(dual, level=_LEVEL)
    return torch.zeros_like(primal) if tangent is None else tangent
