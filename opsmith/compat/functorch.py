"""Tensors inside the transforms of `torch.func`, which only private names of PyTorch describe.

The names exist in each release from 2.10 on.
"""

from __future__ import annotations

import torch
from torch import Tensor

#: Private: ``torch._C._functorch``. Without it, an index that is out of bounds is not found under
#: ``vmap`` or ``jvp``, and the error for a tensor whose transform has ended does not name it.
_functorch = torch._C._functorch


def unwrapped(tensor: Tensor) -> Tensor:
    """Return the tensor inside the wrappers of transforms; `tensor` itself if it has none."""
    if torch.compiler.is_dynamo_compiling():  # Dynamo cannot trace these functions
        return tensor
    while _functorch.is_functorch_wrapped_tensor(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    return tensor


def alive(tensor: Tensor) -> Tensor:
    """Return the tensor inside the wrappers of transforms that have ended."""
    return tensor if torch.compiler.is_dynamo_compiling() else _functorch.unwrap_if_dead(tensor)


def outlived_its_transform(tensor: Tensor) -> bool:
    """Return whether a transform that wrapped a tensor has ended."""
    if torch.compiler.is_dynamo_compiling():
        return False
    active = _functorch.get_interpreter_stack() or []
    while _functorch.is_functorch_wrapped_tensor(tensor):
        level = _functorch.maybe_get_level(tensor)
        if not 0 < level <= len(active):
            return True
        # Another transform may use the same level now.
        batches = active[level - 1].key() == _functorch.TransformType.Vmap
        if _functorch.is_batchedtensor(tensor) != batches:
            return True
        tensor = _functorch.get_unwrapped(tensor)
    return False
