"""Views of larger memory: the strides and offsets that indexing and permuting a tensor leave.

Each kind of view has a single property that no other has, so that a kernel that is wrong for one
property is found whatever else it handles: rows with a gap behind them, memory that is contiguous
and starts later, dimensions in another order. ``mixed`` has several of them. The gaps hold poison.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

OFFSET = "contiguous at an offset"
PADDED = "padded rows"
STEPPED = "every other row"
PERMUTED = "permuted"
CHANNELS_LAST = "channels last"
LONE = "odd strides of size 1"
MIXED = "mixed"

#: The kinds of views.
VIEWS = (OFFSET, PADDED, STEPPED, PERMUTED, CHANNELS_LAST, LONE, MIXED)


def possible(tensor: Tensor, kind: str) -> bool:
    """Return whether a tensor of this shape can be a view of a kind.

    Args:
        tensor: a tensor of any layout.
        kind: one of `VIEWS`.
    """
    wide = sum(size > 1 for size in tensor.shape)
    if not tensor.numel():
        return False
    if kind == PADDED:
        return tensor.dim() > 1 and max(tensor.shape[:-1]) > 1
    if kind == STEPPED:
        return tensor.dim() > 0 and tensor.shape[0] > 1
    if kind == PERMUTED:
        return wide > 2
    if kind == CHANNELS_LAST:
        return wide > 1 and tensor.dim() > 2 and max(tensor.shape[2:]) > 1 < tensor.shape[1]
    if kind == LONE:
        return tensor.dim() > 1 and 1 in tensor.shape
    return True


def view_of(tensor: Tensor, kind: str) -> Tensor:
    """Copy a tensor into a view of larger memory.

    Args:
        tensor: a tensor of any layout for which `possible` is true.
        kind: one of `VIEWS`.

    Returns:
        The view; equal kinds and shapes give equal strides.
    """
    rng = random.Random(f"{kind} {tuple(tensor.shape)}")
    rank = tensor.dim()
    order, gaps, steps = list(range(rank)), [0] * rank, [1] * rank
    offset = 0
    if kind == OFFSET:
        offset = rng.choice((1, 3, 8))
    elif kind == PADDED:
        gaps[-1] = rng.choice((1, 3, 7))
    elif kind == STEPPED:
        steps[0] = 2
    elif kind == PERMUTED:
        order = _order(tensor.shape, rng)
    elif kind == CHANNELS_LAST:
        order = [0, *range(2, rank), 1]
    elif kind == MIXED:
        offset = rng.choice((0, 1, 5))
        rng.shuffle(order)
        gaps = [rng.choice((0, 0, 1, 4)) for _ in order]
        steps = [rng.choice((1, 1, 2, 3)) for _ in order]
    strides = [0] * rank
    reach = 1
    for dim in reversed(order):
        strides[dim] = reach * steps[dim]
        reach *= tensor.shape[dim] * steps[dim] + gaps[dim]
    if kind in (LONE, MIXED):
        for dim in range(rank):
            if tensor.shape[dim] == 1:
                strides[dim] = rng.choice((11, 1000))
    memory = torch.full((offset + reach,), poison(tensor.dtype), dtype=tensor.dtype)
    view = memory.to(tensor.device).as_strided(tensor.shape, strides, offset)
    view.copy_(tensor)
    return view


def _order(shape: Sequence[int], rng: random.Random) -> list[int]:
    """Draw an order of the dimensions in memory that is neither forwards nor backwards."""
    while True:
        order = rng.sample(range(len(shape)), len(shape))
        wide = [dim for dim in order if shape[dim] > 1]
        if len({first < second for first, second in pairwise(wide)}) > 1:
            return order


def poison(dtype: torch.dtype) -> float | int | bool:
    """Return the value of memory that belongs to no element: NaN, or the largest value."""
    if dtype.is_floating_point or dtype.is_complex:
        return float("nan")
    return True if dtype is torch.bool else torch.iinfo(dtype).max
