"""Ways to call an operator that change nothing about its result: modes of autograd, and threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import torch

from opsmith.checks.numerics.torch_threads import threads

PLAIN = ""
NO_GRAD = "torch.no_grad()"
INFERENCE = "torch.inference_mode()"
THREAD = "a second thread"
MANY_THREADS = "17 threads"

#: The ways other than a plain call.
WAYS = (NO_GRAD, INFERENCE, THREAD, MANY_THREADS)
#: More threads than most machines have, and no multiple of a power of two.
_MANY = 17

Returned = TypeVar("Returned")


def call_in(way: str, function: Callable[[], Returned]) -> Returned:
    """Call a function in a way.

    Args:
        way: one of `WAYS`; `PLAIN` for none.
        function: the function.
    """
    if way == NO_GRAD:
        with torch.no_grad():
            return function()
    if way == INFERENCE:
        with torch.inference_mode():
            return function()
    if way == MANY_THREADS:
        with threads(_MANY):
            return function()
    return _in_a_thread(function) if way == THREAD else function()


def described(way: str) -> str:
    """Return how an operator was called, as the beginning of a message; empty for a plain call."""
    if way in (NO_GRAD, INFERENCE):
        return f"called under {way}"
    if way == THREAD:
        return f"called from {way}"
    return f"called with {way}" if way else ""


def _in_a_thread(function: Callable[[], Returned]) -> Returned:
    """Call a function from a thread of its own; what it raises is raised here."""
    returned: list[Returned] = []
    raised: list[BaseException] = []

    def work() -> None:
        try:
            returned.append(function())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return returned[0]
