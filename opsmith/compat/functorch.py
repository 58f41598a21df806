"""Tensors inside the transforms of `torch.func`, about which PyTorch answers by private names."""

from __future__ import annotations

import torch
from torch import Tensor

_functorch = torch._C._functorch


def unwrapped(tensor: Tensor) -> Tensor:
    """Return the tensor that transforms wrapped to make this one, which may be itself."""
    while _functorch.is_functorch_wrapped_tensor(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    return tensor


def outlived_its_transform(tensor: Tensor) -> bool:
    """Return whether the transform that wrapped a tensor has ended."""
    if not _functorch.is_functorch_wrapped_tensor(tensor):
        return False
    level = _functorch.maybe_get_level(tensor)
    return level < 0 or level > (_functorch.maybe_current_level() or 0)
