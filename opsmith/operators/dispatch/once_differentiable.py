"""Backwards decorated with `torch.autograd.function.once_differentiable`, under `torch.func`.

The decorator raises where a gradient is differentiated again in plain autograd. The levels around a
transform take its ``torch.no_grad`` for the user's, and would silently find zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from opsmith.errors import DifferentiationError

_WRAPPER = once_differentiable(lambda ctx: None).__code__  # one for every decorated function


def is_decorated(backward: Callable[..., Any]) -> bool:
    """Return whether a backward cannot be differentiated, as its author says."""
    return getattr(backward, "__code__", None) is _WRAPPER


def refuse_again(name: str, returned: Any, ctx: Any, grads: Sequence[Tensor]) -> Any:
    """Return the gradients of a decorated backward, so that differentiating them again raises.

    Args:
        name: the operator's name.
        returned: the gradients.
        ctx: the context of the backward.
        grads: the gradients that came in.
    """
    given = [*ctx.saved_tensors, *grads, *vars(ctx).values()]
    tensors = [value for value in given if isinstance(value, Tensor)]

    def refuse(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(map(refuse, value))
        return _Refusing.apply(name, value, *tensors) if isinstance(value, Tensor) else value

    return refuse(returned)


class _Refusing(torch.autograd.Function):
    """The identity on a gradient, which every level of `torch.func` records and refuses."""

    generate_vmap_rule = True

    @staticmethod
    def forward(name: str, gradient: Tensor, *given: Tensor) -> Tensor:
        return gradient.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.name = inputs[0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise DifferentiationError(
            f"{ctx.name}: its gradient cannot be differentiated again: its backward is decorated "
            "with once_differentiable. Write the backward with operations that have gradients, or "
            'declare it with autograd="reference".'
        )

    jvp = backward
