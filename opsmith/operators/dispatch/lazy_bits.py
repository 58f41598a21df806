"""Call mutating operators on tensors that are conjugated or negated only when they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from opsmith.operators.core.arguments import map_tensors
from opsmith.operators.core.lazy import late

if TYPE_CHECKING:
    from opsmith.operators.core.operator import Operator

#: The dispatch keys of such tensors.
KEYS = ("Conjugate", "Negative")


def resolving(operator: Operator) -> Callable[..., Any]:
    """Return the kernel of a mutating operator at the keys of such tensors.

    PyTorch's own kernel there copies what was written from the operator's first result. If the
    operator has no result, it reads past the end of the results.

    Args:
        operator: the operator; it writes into at least one argument.
    """
    return late(lambda: _resolving(operator))


def _resolving(operator: Operator) -> Callable[..., Any]:
    from opsmith.operators.core.overlap import keep_apart
    from opsmith.operators.core.validation import Validator

    overload, signature = operator.overload, operator.signature
    names = [parameter.name for parameter in signature.mutated]
    validate, apart = Validator(signature), keep_apart(signature)
    arguments_of, split = operator.arguments, operator.split

    def kernel(*args: Any, **kwargs: Any) -> Any:
        arguments = arguments_of(args, kwargs)
        # The copies would hide from the operator's kernel that written tensors share memory.
        validate(arguments)
        kept = apart(arguments)
        resolved = {name: map_tensors(value, _resolved) for name, value in kept.items()}
        positional, keywords = split(resolved)
        returned = overload(*positional, **keywords)
        for name in names:
            _copy_back(arguments[name], resolved[name])
        return returned

    return kernel


def _resolved(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.resolve_conj().resolve_neg()


def _copy_back(into: Any, written: Any) -> None:
    if isinstance(into, list | tuple):
        for one, other in zip(into, written, strict=True):
            _copy_back(one, other)
    elif into is not written and into is not None:
        into.copy_(written)
