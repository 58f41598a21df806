"""Slice arguments and right results along a dimension of the declaration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from opsmith.checks.cases.failure import Inapplicable
from opsmith.checks.numerics.oracle import Expected
from opsmith.operators.core.arguments import each_tensor, map_named_tensors
from opsmith.signature import Parameter, Result, Signature
from opsmith.signature.sizes import expressions
from opsmith.signature.sizes.expressions import Name
from opsmith.signature.sizes.shapes import Fixed, Shape, Variadic


def _axis(shape: Shape | None, dim: str, rank: int) -> int | None:
    """Return the axis of `dim` (of the first dimension, for a variadic ``*dim``) in a tensor."""
    for axis, one in shape.axes() if shape is not None else ():
        match one:
            case Variadic(name) if name == dim and shape is not None and rank > shape.rank:
                return axis % rank
            case Fixed(Name(name)) if name == dim:
                return axis % rank
    return None


def composite_use(signature: Signature, dim: str) -> str:
    """Return the expression or constraint that depends on the size of `dim`; empty if none does."""
    for owner in signature.owners:
        for one in owner.computed:
            if dim in expressions.names(one):
                return f"the dimension '{expressions.text(one)}' of {owner.name!r}"
    return "which values fit" if dim in signature.constrained_dims else ""


def size_along(signature: Signature, arguments: Mapping[str, Any], dim: str) -> int:
    """Return the size of `dim` (of the first dimension of ``*dim``); 0 where no argument has it."""
    sizes = [0]

    def note(item: Tensor, axis: int) -> Tensor:
        sizes.append(item.shape[axis])
        return item

    map_along(signature, arguments, dim, note)
    return max(sizes)


def map_along(
    signature: Signature,
    arguments: Mapping[str, Any],
    dim: str,
    change: Callable[[Tensor, int], Tensor],
) -> dict[str, Any]:
    """Return the arguments with what `change` makes of each tensor that has `dim`, at its axis."""

    def changed(name: str, item: Tensor) -> Tensor:
        axis = _axis(signature.by_name[name.partition("[")[0]].shape, dim, item.dim())
        return item if axis is None else change(item, axis)

    return map_named_tensors(arguments, changed)


def name_axes(
    signature: Signature, results: Sequence[Tensor], arguments: Mapping[str, Any], dim: str
) -> list[tuple[str, int | None]]:
    """Return the name of each result and written argument, and the axis of `dim` in it."""
    owners: list[Result | Parameter] = [*signature.results]
    for parameter in signature.mutated:
        owners += [parameter] * len(each_tensor(arguments[parameter.name]))
    if len(owners) != len(results):
        raise Inapplicable("lists of results cannot be sliced")
    single = len(signature.results) == 1
    return [
        (
            "the result" if single and isinstance(owner, Result) else owner.name,
            _axis(owner.shape, dim, result.dim()),
        )
        for owner, result in zip(owners, results, strict=True)
    ]


def slice_truth(
    signature: Signature, truth: Expected, dim: str, start: int, length: int
) -> Expected:
    """Return the right results for a slice."""
    axes = name_axes(signature, truth.values, truth.arguments, dim)
    cuts = {n: (axis, start, length) for n, (_, axis) in enumerate(axes) if axis is not None}

    def cut(position: int, value: Tensor | None) -> Tensor | None:
        return value if value is None or position not in cuts else value.narrow(*cuts[position])

    def every(values: list[Any]) -> list[Any]:
        return [cut(position, value) for position, value in enumerate(values)]

    def evaluate(given: Mapping[str, Any]) -> list[Tensor]:
        return every(truth.evaluate(given))

    return Expected(
        truth.names,
        every(truth.values),
        every(truth.spread),
        every(truth.terms),
        truth.exact,
        evaluate,
        truth.arguments,
        signature=truth.signature,
        cuts=cuts,
    )
