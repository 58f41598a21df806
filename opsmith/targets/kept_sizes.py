"""Sizes that are symbols, kept where Python's own functions would fix them to numbers."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import SymFloat, SymInt, Tensor


@contextmanager
def kept_sizes() -> Iterator[None]:
    """Let ``len`` of a tensor, and ``math.sqrt`` of a size, be symbols in a block.

    References are full of them, ``x.new_zeros(len(y))`` and ``scores / math.sqrt(q.shape[-1])``,
    and Python wants numbers of both. In TorchScript's traces sizes are tensors. See also
    `einsum_in_order`.
    """
    plain_len: Callable[[Any], int] = builtins.len
    plain_sqrt = math.sqrt

    def len(value: Any, /) -> Any:
        return value.size(0) if isinstance(value, Tensor) and value.dim() else plain_len(value)

    def sqrt(value: Any, /) -> Any:
        if isinstance(value, SymInt | SymFloat):
            return torch.sym_sqrt(value)
        if isinstance(value, Tensor) and torch.jit.is_tracing():
            return value.sqrt()
        return plain_sqrt(value)

    builtins.len, math.sqrt = len, sqrt
    try:
        with einsum_in_order():
            yield
    finally:
        builtins.len, math.sqrt = plain_len, plain_sqrt


@contextmanager
def einsum_in_order() -> Iterator[None]:
    """Let ``torch.einsum`` of three tensors contract from left to right in a block.

    Where opt_einsum is installed, which comes with JAX, it chooses the order by the sizes, and
    PyTorch fixes all of them to numbers for it.
    """
    settings = torch.backends.opt_einsum
    before = settings.enabled
    settings.enabled = False
    try:
        yield
    finally:
        settings.enabled = before
