"""Memory layouts of a tensor, all with the same values."""

from __future__ import annotations

import torch
from torch import Tensor

from opsmith.checks.cases import views
from opsmith.checks.cases.views import VIEWS, poison

CONTIGUOUS = "contiguous"
TRANSPOSED = "transposed"
SLICED = "sliced"
EXPANDED = "expanded"
OVERLAPPING = "overlapping"
GIVEN = "as given"

#: The layouts that are sampled.
LAYOUTS = (CONTIGUOUS, TRANSPOSED, SLICED, EXPANDED, OVERLAPPING, *VIEWS)


def lay_out(tensor: Tensor, layout: str) -> Tensor:
    """Copy a tensor into another memory layout.

    Args:
        tensor: a tensor of any layout; its values and device are kept.
        layout: ``transposed`` reverses the order of the dimensions in memory; ``sliced`` is a view
            into a larger buffer, with an offset and gaps that hold poison (NaN, or the type's
            largest value), so that a kernel that ignores the strides gives wrong results;
            ``expanded`` gives stride 0 to each dimension along which the values are equal;
            ``overlapping`` gives the last two dimensions the same stride, where the values are
            those of a sliding window; ``as given`` copies the memory, and keeps the strides; for
            the others, see `opsmith.checks.cases.views`.

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
    if layout in VIEWS and views.possible(tensor, layout):
        return views.view_of(tensor, layout)
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
    if layout in VIEWS and not views.possible(tensor, layout):
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
