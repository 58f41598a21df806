"""What follows of the results' shapes where only some sizes of a call are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opsmith.signature import expressions
from opsmith.signature.expressions import Name
from opsmith.signature.model import Signature
from opsmith.signature.parameters import Result
from opsmith.signature.shapes import Fixed, Shape, Variadic

Sizes = Sequence[int | None]
"""The sizes of one tensor, `None` where only the run tells."""


@dataclass
class Known:
    """What is known of a call.

    Attributes:
        dims: the sizes of named dimensions; what is not known is not there.
        variadic: the sizes that each ``*name`` stands for, known or not.
    """

    dims: dict[str, int] = field(default_factory=dict)
    variadic: dict[str, Sizes] = field(default_factory=dict)


def infer(
    signature: Signature, arguments: Mapping[str, Any], sizes_of: Callable[[Any], Sizes | None]
) -> Known:
    """Bind what is known. Nothing is compared: a call does that when all is known.

    Args:
        signature: the operator's.
        arguments: by name; what stands for a tensor may be anything.
        sizes_of: the sizes of what stands for a tensor; `None` where not even their number is
            known, or where there is no tensor.
    """
    known = Known()
    for parameter in signature.tensors:
        type_, value = parameter.tensor_type, arguments[parameter.name]
        if type_ is None or type_.shape is None or value is None:
            continue
        for item in value if parameter.is_tensor_list else [value]:
            sizes = None if item is None else sizes_of(item)
            if sizes is not None:
                _bind(known, type_.shape, sizes)
    return known


def _bind(known: Known, shape: Shape, sizes: Sizes) -> None:
    if len(sizes) < shape.rank:
        return  # the call will be refused
    for axis, dim in shape.axes():
        match dim:
            case Variadic(str(name)):
                known.variadic.setdefault(name, sizes[axis : axis + len(sizes) - shape.rank])
            case Fixed(Name(name)):
                size = sizes[axis]
                if size is not None:
                    known.dims.setdefault(name, size)


def result_sizes(
    signature: Signature, result: Result, known: Known, arguments: Mapping[str, Any]
) -> list[int | None] | None:
    """The sizes of a result; `None` where not even their number is known.

    Args:
        signature: the operator's.
        result: one whose shape is declared.
        known: from `infer`.
        arguments: by name, for the numbers that decide sizes.
    """
    found: list[int | None] = []
    for dim in signature.result_dims(result):
        if isinstance(dim, Variadic):
            many = known.variadic.get(str(dim.name))
            if many is None:
                return None
            found += many
        elif expressions.names(dim.expression) <= set(known.dims):
            found.append(int(expressions.evaluate(dim.expression, known.dims, arguments)))
        else:
            found.append(None)
    return found
