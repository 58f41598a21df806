"""Memory layouts of a tensor, all with the same values."""

from __future__ import annotations

import torch
from torch import Tensor

CONTIGUOUS = "contiguous"
TRANSPOSED = "transposed"
SLICED = "sliced"
EXPANDED = "expanded"
GIVEN = "as given"

#: The layouts that are sampled.
LAYOUTS = (CONTIGUOUS, TRANSPOSED, SLICED, EXPANDED)


def lay_out(tensor: Tensor, layout: str) -> Tensor:
    """Copy a tensor into another memory layout.

    Args:
        tensor: a tensor of any layout; its values and device are kept.
        layout: ``transposed`` reverses the order of the dimensions in memory; ``sliced`` is a view
            into a larger buffer, with an offset and gaps that hold poison (NaN, or the type's
            largest value), so that a kernel that ignores the strides gives wrong results;
            ``expanded`` gives stride 0 to a dimension along which the values are equal; ``as
            given`` copies the memory, and keeps the strides.

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
    dim = constant_dim(tensor) if layout == EXPANDED else None
    if dim is not None:
        return tensor.narrow(dim, 0, 1).clone().expand(tensor.shape)
    return tensor.clone(memory_format=torch.contiguous_format)


def taken(tensor: Tensor, layout: str) -> str:
    """Return the layout that `lay_out` really uses for `layout`: a vector is not transposed."""
    if tensor.numel() == 0 or (layout == EXPANDED and constant_dim(tensor) is None):
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


def constant_dim(tensor: Tensor) -> int | None:
    """Return the first dimension of size 2 or more along which all values are equal."""
    if tensor.numel() == 0:
        return None
    for dim in range(tensor.dim()):
        if tensor.shape[dim] > 1 and bool((tensor == tensor.narrow(dim, 0, 1)).all()):
            return dim
    return None


def make_constant(tensor: Tensor, dim: int) -> Tensor:
    """Return a contiguous copy of `tensor` with its first values repeated along `dim`."""
    return tensor.narrow(dim, 0, 1).expand(tensor.shape).contiguous()


def in_one_memory(first: Tensor, second: Tensor, shift: int) -> tuple[Tensor, Tensor]:
    """Place two contiguous tensors in one memory, the second `shift` elements behind the first.

    In the shared part, both have to hold the same values.
    """
    memory = torch.cat([first.flatten(), second.flatten()[-shift:]])
    return memory[: first.numel()].view(first.shape), memory[shift:].view(second.shape)


def _sliced(tensor: Tensor) -> Tensor:
    if tensor.dim() == 0:
        buffer = tensor.new_full((3,), _poison(tensor.dtype))
        view = buffer[1]
    else:
        *outer, inner = tensor.shape
        buffer = tensor.new_full(
            (*(size + 1 for size in outer), 2 * inner + 3), _poison(tensor.dtype)
        )
        view = buffer[..., 1 : 2 * inner + 1 : 2]
        for dim, size in enumerate(outer):
            view = view.narrow(dim, 1, size)
    view.copy_(tensor)
    return view


def _poison(dtype: torch.dtype) -> float | int | bool:
    if dtype.is_floating_point or dtype.is_complex:
        return float("nan")
    return True if dtype is torch.bool else torch.iinfo(dtype).max
