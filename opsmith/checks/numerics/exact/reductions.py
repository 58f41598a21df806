"""PyTorch's reductions, sorts and scans on numbers that are never rounded."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.numerics.exact import arrays
from opsmith.checks.numerics.exact.arrays import Array
from opsmith.checks.numerics.exact.elementwise import HANDLERS, apply, handler

# --- reductions ----------------------------------------------------------------------------------


def _dims(array: Array, dim: Any) -> list[int]:
    rank = array.values.dim()
    if dim is None or (isinstance(dim, list | tuple) and not dim):
        return list(range(rank))
    many = dim if isinstance(dim, list | tuple) else [dim]
    return [one % rank for one in many] if rank else []


def _kept(array: Array, dims: Sequence[int], *, keepdim: bool) -> list[int]:
    return [
        1 if place in dims else size
        for place, size in enumerate(array.shape)
        if keepdim or place not in dims
    ]


def shaped(array: Array, shape: Sequence[int]) -> Array:
    """Return an array with other sizes."""
    return array.map(lambda plane: plane.reshape(shape))


def fold(name: str, start: float, array: Array, dim: Any = None, keepdim: bool = False) -> Array:
    """Fold an array along some of its dims, by default along all."""
    dims = _dims(array, dim)
    found = arrays.fold(name, start, array.rows(dims))
    return shaped(found, _kept(array, dims, keepdim=keepdim))


def _folding(name: str, start: float) -> Callable[..., Any]:
    def run(mode: Any, x: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> Array:
        return fold(name, start, mode.array(x), dim, keepdim)

    return run


HANDLERS["sum"] = _folding("add", 0)
HANDLERS["prod"] = _folding("mul", 1)
HANDLERS["amax"] = _folding("maximum", -math.inf)
HANDLERS["amin"] = _folding("minimum", math.inf)


def _extreme(largest: bool) -> Callable[..., Any]:
    def extreme(mode: Any, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if isinstance(dim, Tensor):
            return apply("maximum" if largest else "minimum", mode.array(x), mode.array(dim))
        array = mode.array(x)
        if dim is None:
            return fold("maximum" if largest else "minimum", 0, array)
        place = _place(array, dim, keepdim, largest=largest)
        whole = place if keepdim or not array.values.dim() else place.unsqueeze(dim)
        if not array.values.dim():
            return array, place
        found = array.map(lambda plane: torch.gather(plane, dim, whole))
        return (found if keepdim else found.map(lambda plane: plane.squeeze(dim))), place

    return extreme


def _place(array: Array, dim: Any, keepdim: bool, *, largest: bool) -> Tensor:
    dims = _dims(array, dim)
    found = arrays.extreme(array.rows(dims), largest=largest)
    return found.reshape(_kept(array, dims, keepdim=keepdim))


HANDLERS["max"] = _extreme(largest=True)
HANDLERS["min"] = _extreme(largest=False)


@handler("argmax")
def _argmax(mode: Any, x: Any, dim: Any = None, keepdim: bool = False) -> Tensor:
    return _place(mode.array(x), dim, keepdim, largest=True)


@handler("argmin")
def _argmin(mode: Any, x: Any, dim: Any = None, keepdim: bool = False) -> Tensor:
    return _place(mode.array(x), dim, keepdim, largest=False)


def _cumulative(name: str, start: float) -> Callable[..., Any]:
    def run(mode: Any, x: Any, dim: int, **_: Any) -> Array:
        array: Array = mode.array(x)
        if not array.values.dim():
            return array
        last = array.map(lambda plane: plane.movedim(dim, -1))
        rows = last.map(lambda plane: plane.reshape(-1, plane.shape[-1]))
        found = shaped(arrays.fold(name, start, rows, cumulative=True), last.shape)
        return found.map(lambda plane: plane.movedim(-1, dim))

    return run


HANDLERS["cumsum"] = _cumulative("add", 0)
HANDLERS["cumprod"] = _cumulative("mul", 1)


@handler("sort")
def _sort(mode: Any, x: Any, dim: Any = -1, descending: Any = False, **named: Any) -> Any:
    array = mode.array(x)
    stable = bool(named.get("stable"))
    if "stable" not in named and isinstance(descending, bool) and isinstance(dim, bool):
        dim, descending = -1, dim
    place = torch.sort(
        array.values, dim=dim, descending=named.get("descending", descending), stable=stable
    ).indices
    return array.map(lambda plane: torch.gather(plane, dim, place)), place


@handler("topk")
def _topk(
    mode: Any, x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Any:
    array = mode.array(x)
    place = torch.topk(array.values, k, dim, largest, sorted).indices
    return array.map(lambda plane: torch.gather(plane, dim, place)), place
