"""Sizes that are symbols, kept where Python's own functions would fix them to numbers."""

from __future__ import annotations

import builtins
import functools
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import SymFloat, SymInt, Tensor

from opsmith.compat.patch import Patch


class _Thread(threading.local):
    """The number of `kept_sizes` blocks that this thread is in."""

    blocks = 0


_thread = _Thread()


@contextmanager
def kept_sizes() -> Iterator[None]:
    """Let ``len`` of a tensor, and ``math.sqrt`` of a size, be symbols in a block.

    References are full of them, ``x.new_zeros(len(y))`` and ``scores / math.sqrt(q.shape[-1])``,
    and Python wants numbers of both. In TorchScript's traces sizes are tensors. Other threads get
    what Python gives. See also `einsum_in_order`.
    """
    with _len(), _sqrt(), einsum_in_order():
        _thread.blocks += 1
        try:
            yield
        finally:
            _thread.blocks -= 1


def _keeping_len(plain: Callable[[Any], int]) -> Callable[[Any], Any]:
    @functools.wraps(plain)
    def len(value: Any, /) -> Any:
        if _thread.blocks and isinstance(value, Tensor) and value.dim():
            return value.size(0)
        return plain(value)

    return len


def _keeping_sqrt(plain: Callable[[Any], float]) -> Callable[[Any], Any]:
    @functools.wraps(plain)
    def sqrt(value: Any, /) -> Any:
        if _thread.blocks and isinstance(value, SymInt | SymFloat):
            return torch.sym_sqrt(value)
        if _thread.blocks and isinstance(value, Tensor) and torch.jit.is_tracing():
            return value.sqrt()
        return plain(value)

    return sqrt


# Python's functions are replaced, because a reference may call them at any depth, in functions of
# other modules too, and what ``__len__`` and ``__float__`` return must be numbers of Python's.
_len = Patch(lambda: builtins, "len", _keeping_len)
_sqrt = Patch(lambda: math, "sqrt", _keeping_sqrt)

#: A block in which ``torch.einsum`` of three tensors contracts from left to right. Where opt_einsum
#: is installed, which comes with JAX, it chooses the order by the sizes, and PyTorch fixes all of
#: them to numbers for it.
einsum_in_order = Patch(lambda: torch.backends.opt_einsum, "enabled", lambda _: False)
