"""Evaluate references so that tensors without a dtype of their own are in double precision."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_DOUBLE = {torch.float32: torch.float64, torch.complex64: torch.complex128}


@contextmanager
def double_by_default() -> Iterator[None]:
    """Let ``torch.zeros(n)`` and quotients of integers have double precision in this block.

    PyTorch's default dtype is the whole process's. Only the main thread sets it: in a thread beside
    a user's program, tensors that the program makes meanwhile would change, so a mode of that
    thread's own stands in.
    """
    if threading.current_thread() is not threading.main_thread():
        with _Doubles():
            yield
        return
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class _Doubles(TorchFunctionMode):
    """Call functions again in double precision where the default dtype decided on the result."""

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        arguments: tuple[Any, ...] = (),
        keywords: Mapping[str, Any] | None = None,
    ) -> Any:
        keywords = keywords or {}
        made = function(*arguments, **keywords)
        given = list(_leaves([arguments, keywords]))
        if not isinstance(made, Tensor) or made.dtype not in _DOUBLE or any(map(_decides, given)):
            return made
        if any(isinstance(value, Tensor) for value in given):
            named = {name: _doubled(value) for name, value in keywords.items()}
            return function(*map(_doubled, arguments), **named)
        try:
            return function(*arguments, **keywords, dtype=_DOUBLE[made.dtype])
        except TypeError:
            return made.to(_DOUBLE[made.dtype])


def _decides(value: Any) -> bool:
    """Return whether a result's dtype follows from this value, rather than from the default."""
    if isinstance(value, Tensor):
        return value.is_floating_point() or value.is_complex()
    return isinstance(value, torch.dtype)


def _doubled(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(map(_doubled, value))
    return value.double() if isinstance(value, Tensor) else value


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, list | tuple):
        yield value
        return
    for one in value:
        yield from _leaves(one)
