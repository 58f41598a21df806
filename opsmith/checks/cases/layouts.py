"""Memory layouts of a tensor, all with the same values.

Some are views of larger memory: the strides and offsets that indexing and permuting a tensor leave.
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

CONTIGUOUS = "contiguous"
TRANSPOSED = "transposed"
SLICED = "sliced"
EXPANDED = "expanded"
OVERLAPPING = "overlapping"
GIVEN = "as given"
OFFSET = "contiguous at an offset"
PADDED = "padded rows"
STEPPED = "every other row"
PERMUTED = "permuted"
CHANNELS_LAST = "channels last"
LONE = "odd strides of size 1"
_MIXED = "mixed"

#: The kinds of views.
_VIEWS = (OFFSET, PADDED, STEPPED, PERMUTED, CHANNELS_LAST, LONE, _MIXED)

#: The layouts that are sampled.
LAYOUTS = (CONTIGUOUS, TRANSPOSED, SLICED, EXPANDED, OVERLAPPING, *_VIEWS)


def lay_out(tensor: Tensor, layout: str) -> Tensor:
    """Copy a tensor into another memory layout.

    Args:
        tensor: a tensor of any layout; its values and device are kept.
        layout: ``transposed`` reverses the order of the dimensions in memory; ``sliced`` is a view
            into a larger buffer, with an offset and gaps that hold poison (NaN, or the type's
            largest value), so that a kernel that ignores the strides gives wrong results;
            ``expanded`` gives stride 0 to each dimension along which the values are equal;
            ``overlapping`` gives the last two dimensions the same stride, where the values are
            those of a sliding window; ``as given`` copies the memory, and keeps the strides; the
            others are views of larger memory.

    Returns:
        The copy; contiguous where the layout is not possible (see `possible`).
    """
    if layout == TRANSPOSED and tensor.dim() > 1:
        order = tuple(reversed(range(tensor.dim())))
        return tensor.permute(order).clone(memory_format=torch.contiguous_format).permute(order)
    if layout in (SLICED, TRANSPOSED):
        return _sliced(tensor)
    if layout == GIVEN:
        memory = tensor.untyped_storage().clone()
        place = tensor.storage_offset(), tensor.shape, tensor.stride()
        return tensor.new_empty(0).set_(memory, *place)
    if layout == OVERLAPPING and _slides(tensor):
        line = torch.cat([tensor[..., 0, :], tensor[..., 1:, -1]], -1)
        return line.unfold(-1, tensor.shape[-1], 1)
    if layout in _VIEWS and _has_view(tensor, layout):
        return _view_of(tensor, layout)
    if layout == EXPANDED and (dims := constant_dims(tensor)):
        once = tensor
        for dim in dims:
            once = once.narrow(dim, 0, 1)
        return once.clone(memory_format=torch.contiguous_format).expand(tensor.shape)
    return tensor.clone(memory_format=torch.contiguous_format)


def taken(tensor: Tensor, layout: str) -> str:
    """Return the layout that `lay_out` really uses for `layout`: a vector is not transposed."""
    if tensor.numel() == 0 or (layout == EXPANDED and not constant_dims(tensor)):
        return CONTIGUOUS
    if layout == OVERLAPPING and not _slides(tensor):
        return CONTIGUOUS
    if layout in _VIEWS and not _has_view(tensor, layout):
        return CONTIGUOUS
    if layout == GIVEN and tensor.is_contiguous() and not tensor.storage_offset():
        return CONTIGUOUS
    return SLICED if layout == TRANSPOSED and tensor.dim() < 2 else layout


def possible(tensor: Tensor, layout: str) -> bool:
    """Return whether `lay_out` gives a layout that is not contiguous."""
    return taken(tensor, layout) != CONTIGUOUS


def plain(tensor: Tensor) -> Tensor:
    """Return a contiguous CPU copy with default strides and no conjugate or negative bit."""
    own = _on_cpu(tensor)
    return torch.empty(own.shape, dtype=own.dtype).copy_(own)


def bits(tensor: Tensor) -> Tensor:
    """Return the bytes of the elements in order, without a copy if the tensor is contiguous."""
    own = _on_cpu(tensor).contiguous()
    # A tensor of one element may have any stride, and viewing it as bytes requires stride 1.
    return own.as_strided((own.numel(),), (1,)).view(torch.uint8)


def _on_cpu(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().resolve_conj().resolve_neg()


def constant_dims(tensor: Tensor) -> list[int]:
    """Return the dimensions of size 2 or more along which all values are equal."""
    if tensor.numel() == 0:
        return []
    return [
        dim
        for dim in range(tensor.dim())
        if tensor.shape[dim] > 1 and bool((tensor == tensor.narrow(dim, 0, 1)).all())
    ]


def make_constant(tensor: Tensor, dim: int) -> Tensor:
    """Return a contiguous copy of `tensor` with its first values repeated along `dim`."""
    return tensor.narrow(dim, 0, 1).expand(tensor.shape).contiguous()


def make_sliding(tensor: Tensor) -> Tensor:
    """Return a contiguous copy in which each row is the row before it, moved on by one element.

    The first row and the last column keep their values. A tensor of fewer than two dimensions is
    only copied.
    """
    if tensor.dim() < 2 or not tensor.numel():
        return tensor.clone()
    line = torch.cat([tensor[..., 0, :], tensor[..., 1:, -1]], -1)
    return line.unfold(-1, tensor.shape[-1], 1).contiguous()


def _slides(tensor: Tensor) -> bool:
    """Return whether the values are those of a window that slides along a line."""
    if tensor.dim() < 2 or min(tensor.shape[-2:]) < 2 or not tensor.numel():
        return False
    return bool((tensor[..., 1:, :-1] == tensor[..., :-1, 1:]).all())


def in_one_memory(first: Tensor, second: Tensor, shift: int) -> tuple[Tensor, Tensor]:
    """Place two contiguous tensors in one memory, the second `shift` elements behind the first.

    In the shared part, both have to hold the same values.
    """
    memory = torch.cat([first.flatten(), second.flatten()[-shift:]])
    return memory[: first.numel()].view(first.shape), memory[shift:].view(second.shape)


def _sliced(tensor: Tensor) -> Tensor:
    if tensor.dim() == 0:
        buffer = tensor.new_full((3,), poison(tensor.dtype))
        buffer[1].copy_(tensor)
        return buffer[1]
    *outer, inner = tensor.shape
    buffer = tensor.new_full((*(size + 1 for size in outer), 2 * inner + 3), poison(tensor.dtype))
    view = buffer[..., 1 : 2 * inner + 1 : 2]
    for dim, size in enumerate(outer):
        view = view.narrow(dim, 1, size)
    view.copy_(tensor)
    return view


def _has_view(tensor: Tensor, kind: str) -> bool:
    """Return whether a tensor of this shape can be a view of one of `_VIEWS`."""
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


def _view_of(tensor: Tensor, kind: str) -> Tensor:
    """Copy a tensor into a view of larger memory, if `_has_view` is true.

    Equal kinds and shapes give equal strides.
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
    elif kind == _MIXED:
        offset = rng.choice((0, 1, 5))
        rng.shuffle(order)
        gaps = [rng.choice((0, 0, 1, 4)) for _ in order]
        steps = [rng.choice((1, 1, 2, 3)) for _ in order]
    strides = [0] * rank
    reach = 1
    for dim in reversed(order):
        strides[dim] = reach * steps[dim]
        reach *= tensor.shape[dim] * steps[dim] + gaps[dim]
    if kind in (LONE, _MIXED):
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
