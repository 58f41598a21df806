"""Arguments of the right shapes that break one condition on sizes and numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from opsmith.errors import ArgumentError
from opsmith.operators.core.arguments import describe, map_named_tensors
from opsmith.signature import Bindings, Signature, bind
from opsmith.signature.sizes import expressions
from opsmith.signature.sizes.conditions import Condition
from opsmith.signature.sizes.expressions import Scalar
from opsmith.signature.sizes.shapes import Fixed

#: The most elements of a tensor with a size that breaks a condition.
_MOST = 1 << 24


@dataclass(frozen=True)
class Broken:
    """Arguments that break a condition, and nothing else that is compared before it.

    Attributes:
        condition: the condition as the author wrote it.
        what: the change, in words.
    """

    condition: str
    what: str
    arguments: dict[str, Any]


def broken_conditions(signature: Signature, arguments: Mapping[str, Any]) -> Iterator[Broken]:
    """Yield arguments that break one of the operator's conditions, for each condition.

    A condition is left out if no size or number near the present ones breaks it alone.

    Args:
        arguments: valid arguments of a call.
    """
    if not signature.conditions:
        return
    bindings = bind(signature, describe(dict(arguments), signature))
    for condition in signature.conditions:
        for what, changed in _changes(signature, condition, arguments, bindings):
            if _breaks(signature, condition, changed):
                yield Broken(condition.text, what, changed)
                break


def _breaks(signature: Signature, condition: Condition, arguments: dict[str, Any]) -> bool:
    try:
        bind(signature, describe(arguments, signature))
    except ArgumentError as error:
        return f"do not satisfy {condition.text}" in str(error)
    except ZeroDivisionError:
        pass
    return False


def _changes(
    signature: Signature, condition: Condition, arguments: Mapping[str, Any], bindings: Bindings
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield arguments in which one size or one number that the condition reads is another."""
    leaves = dict.fromkeys(leaf for one in condition.comparisons for leaf in one.leaves)
    gap = _gap(condition, bindings.dims, arguments)
    for leaf in leaves:
        match leaf:
            case expressions.Name(name):
                for size in _others(bindings.dims[name], gap):
                    made = _resized(signature, arguments, bindings, {name: size})
                    if made is not None:
                        yield f"{name}={size} where {condition.text}", made
            case Scalar(name, index):
                own = arguments[name]
                for number in _others(own if index is None else own[index], gap):
                    value = number if index is None else [*own[:index], number, *own[index + 1 :]]
                    made = _resized(signature, {**arguments, name: value}, bindings, {})
                    if made is not None:
                        yield f"{name}={value} where {condition.text}", made


def _gap(condition: Condition, dims: Mapping[str, Any], arguments: Mapping[str, Any]) -> int:
    """Return the largest difference between the sides of a comparison."""
    return max(
        abs(
            int(expressions.evaluate(one.left, dims, arguments))
            - int(expressions.evaluate(one.right, dims, arguments))
        )
        for one in condition.comparisons
    )


def _others(value: int, gap: int) -> list[int]:
    steps = (1, -1, 2, 3, 5, gap + 1, -gap - 1)
    return [*dict.fromkeys((*(value + step for step in steps), 0, 1))]


def _resized(
    signature: Signature,
    arguments: Mapping[str, Any],
    bindings: Bindings,
    changed: Mapping[str, int],
) -> dict[str, Any] | None:
    """Return the arguments with other sizes; `None` if a size would be negative or too large."""
    if any(size < 0 for size in changed.values()):
        return None
    dims = {**bindings.dims, **changed}

    def resized(name: str, tensor: Tensor) -> Tensor:
        shape = signature.by_name[name.partition("[")[0]].shape
        sizes = list(tensor.shape)
        for axis, dim in shape.axes() if shape else ():
            if isinstance(dim, Fixed):
                sizes[axis] = int(expressions.evaluate(dim.expression, dims, arguments))
        if sizes == list(tensor.shape):
            return tensor
        if any(size < 0 for size in sizes) or math.prod(sizes) > _MOST:
            raise ValueError
        return tensor.new_zeros(sizes)

    try:
        return map_named_tensors(arguments, resized)
    except (ValueError, ZeroDivisionError):
        return None
