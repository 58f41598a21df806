"""What onnxscript cannot translate in every call, by other operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import SymInt, Tensor


def _split(input: Tensor, size: int | SymInt, dim: int = 0) -> Any:
    """Parts whose size is a symbol, as slices; the optimiser takes the size for a constant."""
    if not isinstance(size, SymInt):
        return NotImplemented
    total = input.shape[dim]
    count = int((total + size - 1) // size)
    sizes = [size] * (count - 1) + [total - size * (count - 1)]
    return [input.narrow(dim, size * i, part) for i, part in enumerate(sizes)]


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {torch.ops.aten.split.Tensor: _split}
"""By overload what does the same; `NotImplemented` where the exporters can translate the call."""
