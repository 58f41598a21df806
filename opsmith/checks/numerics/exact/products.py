"""PyTorch's products and scattered sums of numbers that are never rounded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.numerics.exact import arrays
from opsmith.checks.numerics.exact.arrays import Array
from opsmith.checks.numerics.exact.elementwise import apply, constant, handler
from opsmith.checks.numerics.exact.reductions import shaped

# --- products ------------------------------------------------------------------------------------


@handler("mm")
def _mm(mode: Any, x: Any, y: Any) -> Array:
    first, second = mode.array(x), mode.array(y)
    found = arrays.product(
        first.map(lambda plane: plane.unsqueeze(0)), second.map(lambda plane: plane.unsqueeze(0))
    )
    return found.map(lambda plane: plane[0])


@handler("bmm")
def _bmm(mode: Any, x: Any, y: Any) -> Array:
    return arrays.product(mode.array(x), mode.array(y))


@handler("convolution")
def _convolution(
    mode: Any, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int,
) -> Any:  # fmt: skip
    if transposed:
        return NotImplemented
    array, taps = mode.array(x), mode.array(weight)
    around = [size for one in reversed(padding) for size in (one, one)]
    array = array.map(lambda plane: torch.constant_pad_nd(plane, around, 0))
    for place, (step, gap) in enumerate(zip(stride, dilation, strict=True)):
        reach = (taps.shape[2 + place] - 1) * gap + 1
        array = array.map(
            lambda plane, at=2 + place, reach=reach, step=step, gap=gap: plane.unfold(
                at, reach, step
            )[..., ::gap]
        )
    rank = len(stride)
    outputs, inputs = taps.shape[0] // groups, taps.shape[1]
    batch, sizes = array.shape[0], array.shape[2 : 2 + rank]
    # Batch and group, then places, then input channels and taps.
    order = [0, 1, *range(3, 3 + rank), 2, *range(3 + rank, 3 + 2 * rank)]
    columns = array.map(
        lambda plane: (
            plane.unflatten(1, (groups, inputs))
            .permute(order)
            .reshape(batch * groups, math.prod(sizes), -1)
        )
    )
    rows = taps.map(
        lambda plane: plane.reshape(groups, outputs, -1).transpose(1, 2).repeat(batch, 1, 1)
    )
    found = arrays.product(columns, rows).map(
        lambda plane: plane.transpose(1, 2).reshape(batch, groups * outputs, *sizes)
    )
    if bias is None:
        return found
    shape = (1, -1, *[1] * rank)
    return apply("add", found, mode.array(bias).map(lambda plane: plane.reshape(shape)))


# --- scattering ----------------------------------------------------------------------------------


def _added_at(array: Array, places: Tensor, values: Array) -> Array:
    """Return a flat array with `values` added at `places`, one after the other."""
    order = torch.argsort(places, stable=True)
    places, values = places[order], values.map(lambda plane: plane[order])
    total = array.map(Tensor.clone)
    while places.numel():
        first = torch.ones_like(places, dtype=torch.bool)
        first[1:] = places[1:] != places[:-1]
        _add_once(total, places[first], values.map(lambda plane, at=first: plane[at]))
        places = places[~first]
        values = values.map(lambda plane, at=first: plane[~at])
    return total


def _add_once(total: Array, places: Tensor, values: Array) -> None:
    """Add numbers at places that are all different."""
    added = apply("add", total.map(lambda plane: plane[places]), values)
    total.values[places] = added.values
    total.residues[places] = added.residues
    total.doubts[places] = added.doubts


def _positions(shape: Sequence[int]) -> Tensor:
    return torch.arange(math.prod(shape)).reshape(tuple(shape))


def _accumulated(array: Array, places: Tensor, values: Array) -> Array:
    flat = _added_at(shaped(array, (-1,)), places.reshape(-1), shaped(values, (-1,)))
    return shaped(flat, array.shape)


@handler("scatter_add")
def _scatter_add(mode: Any, x: Any, dim: int, index: Tensor, source: Any) -> Array:
    array, values = mode.array(x), mode.array(source)
    values = values.map(lambda plane: plane[tuple(slice(size) for size in index.shape)])
    places = torch.gather(_positions(array.shape), dim, index) if index.numel() else index
    return _accumulated(array, places, values)


@handler("index_put", "_unsafe_index_put")
def _index_put(mode: Any, x: Any, indices: Any, values: Any, accumulate: bool = False) -> Array:
    array: Array = mode.array(x)
    places = _positions(array.shape)[tuple(slice(None) if i is None else i for i in indices)]
    given = mode.array(values).map(lambda plane: plane.expand(places.shape))
    if accumulate:
        return _accumulated(array, places, given)
    return array.map_with(given, lambda into, plane: _put(into, places, plane))


def _put(into: Tensor, places: Tensor, plane: Tensor) -> Tensor:
    flat = into.reshape(-1).clone()
    flat[places.reshape(-1)] = plane.reshape(-1)
    return flat.reshape(into.shape)


@handler("scatter")
def _scatter(mode: Any, x: Any, dim: int, index: Tensor, source: Any, **named: Any) -> Array:
    array: Array = mode.array(x)
    values: Array = mode.array(source)
    if values.values.dim():
        values = values.map(lambda plane: plane[tuple(slice(size) for size in index.shape)])
    else:
        values = values.map(lambda plane: plane.expand(index.shape))
    return array.map_with(values, lambda into, plane: torch.scatter(into, dim, index, plane))


@handler("constant_pad_nd")
def _pad(mode: Any, x: Any, pad: Any, value: Any = 0) -> Array:
    array: Array = mode.array(x)
    return array.map_with(
        constant(value), lambda plane, other: torch.constant_pad_nd(plane, pad, other.item())
    )
