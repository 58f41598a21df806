"""Keep sizes symbolic where Python's own functions would turn them into numbers."""

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


class _KeptThread(threading.local):
    """The number of `kept_sizes` blocks that this thread is in."""

    blocks = 0


_thread = _KeptThread()


@contextmanager
def kept_sizes() -> Iterator[None]:
    """Make ``len`` of a tensor, and ``math.sqrt`` of a size, return symbols in a block.

    References often contain ``x.new_zeros(len(y))`` or ``scores / math.sqrt(q.shape[-1])``, and
    Python requires both functions to return numbers. In TorchScript's traces sizes are tensors.
    Other threads are not affected. See also `einsum_in_order`.
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


# Replace Python's functions themselves, because a reference may call them at any depth, also in
# functions of other modules, and ``__len__`` and ``__float__`` may return only Python numbers.
_len = Patch(lambda: builtins, "len", _keeping_len)
_sqrt = Patch(lambda: math, "sqrt", _keeping_sqrt)

#: A block in which ``torch.einsum`` of three tensors contracts from left to right. opt_einsum,
#: which is installed with JAX, would choose the order by the sizes, and PyTorch would turn all
#: sizes into numbers for it.
einsum_in_order = Patch(lambda: torch.backends.opt_einsum, "enabled", lambda _: False)
