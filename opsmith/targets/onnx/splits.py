"""Splits into parts whose size is a symbol, such as the halves of a dynamic size, as slices.

onnxscript's optimiser takes their size for a constant, and fails where it is none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import SymInt, Tensor


def _split(input: Tensor, size: int | SymInt, dim: int = 0) -> Any:
    if not isinstance(size, SymInt):
        return NotImplemented
    total = input.shape[dim]
    count = int((total + size - 1) // size)
    sizes = [size] * (count - 1) + [total - size * (count - 1)]
    return [input.narrow(dim, size * i, part) for i, part in enumerate(sizes)]


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {torch.ops.aten.split.Tensor: _split}
"""What the exporters get in place of operators that they cannot translate in every call."""
