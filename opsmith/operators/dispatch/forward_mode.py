"""Compute forward-mode derivatives: the operator gives results, the reference their tangents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.autograd import forward_ad

from opsmith.errors import DifferentiationError
from opsmith.operators.core.arguments import map_tensors
from opsmith.operators.dispatch.written_gradients import functional_form, written_names

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


def forward_mode(operator: Operator, args: Any, kwargs: Any, call: Callable[..., Any]) -> Any:
    """Return the results of a call whose arguments carry tangents, with their own tangents.

    Args:
        operator: the operator that is called.
        args: the call's positional arguments.
        kwargs: the call's keyword arguments.
        call: calls the operator without tangents. Its kernel validates the arguments, which the
            reference does not.

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
    positional, keywords = operator.split(
        {name: map_tensors(value, _primal) for name, value in arguments.items()}
    )
    returned = call(*positional, **keywords)
    dual = operator.reference(**arguments)
    results = operator.signature.results
    if all(result.differentiable for result in results):
        return _with_tangents(returned, dual)
    if len(results) == 1:
        return returned
    each = zip(results, returned, dual, strict=True)
    return tuple(
        _with_tangents(one, other) if result.differentiable else one for result, one, other in each
    )


def _primal(tensor: Tensor) -> Tensor:
    unpacked = forward_ad.unpack_dual(tensor, level=_LEVEL)
    return tensor if unpacked.tangent is None else unpacked.primal


def _with_tangents(returned: Any, dual: Any) -> Any:
    """Return `returned` with the tangents of `dual`, which has the same structure."""
    if not isinstance(returned, Tensor):
        return type(returned)(
            _with_tangents(one, other) for one, other in zip(returned, dual, strict=True)
        )
    tangent = forward_ad.unpack_dual(dual, level=_LEVEL).tangent
    return returned if tangent is None else forward_ad.make_dual(returned, tangent, level=_LEVEL)
