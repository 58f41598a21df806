"""Fold a batch into one parallel dimension of every tensor that has the dimension."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from opsmith.signature.model import Signature
from opsmith.signature.parameters import TensorListType
from opsmith.signature.sizes import expressions
from opsmith.signature.sizes.expressions import Name
from opsmith.signature.sizes.shapes import Fixed, Shape, Variadic


@dataclass(frozen=True)
class Fold:
    """A way to replace one call per sample by a single call.

    Attributes:
        axes: the axis of the dimension in each tensor argument that has it.
        out_axes: the axis of the dimension in each result.
        variadic: whether it stands for any number of dimensions, so that the batch becomes a
            dimension of its own; else its size is multiplied.
    """

    axes: Mapping[str, int]
    out_axes: tuple[int, ...]
    variadic: bool


def fold(signature: Signature, batched: Collection[str]) -> Fold | None:
    """Return the fold along the first of the `parallel_dims` that can hold the batch.

    Args:
        batched: the names of the arguments that have a batch.

    Returns:
        `None` if no parallel dimension can hold the batch: then the operator is called per sample.
    """
    for dim in signature.parallel_dims:
        found = _along(dim.removeprefix("*"), signature, batched)
        if found is not None:
            return found
    return None


def _along(dim: str, signature: Signature, batched: Collection[str]) -> Fold | None:
    axes: dict[str, int] = {}
    for parameter in signature.tensors:
        axis = _axis(parameter.shape, dim)
        if axis is not None and parameter.is_tensor:
            axes[parameter.name] = axis
    if any(name not in axes for name in batched) or _read_elsewhere(signature, dim):
        return None
    out_axes = [_axis(result.shape, dim) for result in signature.results]
    if not signature.shaped or any(axis is None for axis in out_axes):
        return None
    known = tuple(axis for axis in out_axes if axis is not None)
    return Fold(axes, known, dim in signature.variadic_dims)


def _axis(shape: Shape | None, dim: str) -> int | None:
    """Return the axis of `dim` in `shape`, if it occurs once and after no variadic dimension."""
    if shape is None:
        return None
    found = [
        axis
        for axis, d in enumerate(shape.dims)
        if (isinstance(d, Fixed) and d.expression == Name(dim))
        or (isinstance(d, Variadic) and d.name == dim)
    ]
    if len(found) != 1 or any(isinstance(d, Variadic) for d in shape.dims[: found[0]]):
        return None
    return found[0]


def _read_elsewhere(signature: Signature, dim: str) -> bool:
    """Return whether `dim` also decides a size, a constraint, or the shape of a list's tensors."""
    for owner in signature.owners:
        if isinstance(owner.type, TensorListType) and _axis(owner.shape, dim) is not None:
            return True
        if any(dim in expressions.names(expression) for expression in owner.computed):
            return True
    return dim in signature.constrained_dims
