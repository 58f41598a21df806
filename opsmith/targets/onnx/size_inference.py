"""Infer the results' shapes of a call from those sizes that are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opsmith.signature.equations import Equation
from opsmith.signature.model import Signature
from opsmith.signature.parameters import Result
from opsmith.signature.sizes import expressions
from opsmith.signature.sizes.expressions import Name
from opsmith.signature.sizes.shapes import Fixed, Shape, Variadic

Sizes = Sequence[int | None]
"""The sizes of one tensor; `None` for a size that is known at run time only."""


@dataclass
class KnownSizes:
    """The known sizes of a call.

    Attributes:
        dims: the sizes of named dimensions, without unknown ones.
        variadic: the sizes that each ``*name`` stands for, known or not.
    """

    dims: dict[str, int] = field(default_factory=dict)
    variadic: dict[str, Sizes] = field(default_factory=dict)


def infer(
    signature: Signature, arguments: Mapping[str, Any], sizes_of: Callable[[Any], Sizes | None]
) -> KnownSizes:
    """Bind the known sizes, without comparing anything: the call itself does that.

    Args:
        arguments: the arguments by name; anything may stand for a tensor.
        sizes_of: returns the sizes of the object that stands for a tensor; `None` if not even their
            number is known, or if it does not stand for a tensor.
    """
    known = KnownSizes()
    for parameter in signature.tensors:
        shape, value = parameter.shape, arguments[parameter.name]
        if shape is None or value is None:
            continue
        for item in value if parameter.is_tensor_list else [value]:
            sizes = None if item is None else sizes_of(item)
            if sizes is not None:
                _bind(known, shape, sizes)
    for equation in signature.equations:
        _solve(known, equation, signature, arguments, sizes_of)
    return known


def _bind(known: KnownSizes, shape: Shape, sizes: Sizes) -> None:
    if len(sizes) < shape.rank:
        return  # the call will fail
    for axis, dim in shape.axes():
        match dim:
            case Variadic(str(name)):
                known.variadic.setdefault(name, sizes[axis : axis + len(sizes) - shape.rank])
            case Fixed(Name(name)):
                size = sizes[axis]
                if size is not None:
                    known.dims.setdefault(name, size)


def _solve(
    known: KnownSizes,
    equation: Equation,
    signature: Signature,
    arguments: Mapping[str, Any],
    sizes_of: Callable[[Any], Sizes | None],
) -> None:
    parameter, value = signature.by_name[equation.parameter], arguments[equation.parameter]
    shape = parameter.shape
    if value is None or shape is None or not equation.reads <= known.dims.keys():
        return
    axis = [axis for axis, _ in shape.axes()][equation.position]
    factor, rest = equation.numbers(known.dims, arguments)
    for item in value if parameter.is_tensor_list else [value]:
        sizes = None if item is None else sizes_of(item)
        size = sizes[axis] if sizes is not None and len(sizes) >= shape.rank else None
        if size is not None and factor:
            known.dims.setdefault(equation.name, (size - rest) // factor)


def result_sizes(
    signature: Signature, result: Result, known: KnownSizes, arguments: Mapping[str, Any]
) -> list[int | None] | None:
    """Return the sizes of a result; `None` if not even their number is known.

    Args:
        result: a result whose shape is declared.
        known: the result of `infer`.
        arguments: the arguments by name, for the numbers that decide sizes.
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
