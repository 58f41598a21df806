"""Exports take turns in a process."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_turn = threading.RLock()


@contextmanager
def taking_turns() -> Iterator[None]:
    """Wait until no other thread is in such a block, and keep other threads out of it.

    What PyTorch's tracers and exporters are doing is in globals of theirs, so that two threads that
    export at once get errors, or a graph with each other's nodes.
    """
    with _turn:
        yield


def _renew() -> None:
    """Give a forked process, in which the thread that has its turn does not exist, a lock."""
    global _turn
    _turn = threading.RLock()


os.register_at_fork(after_in_child=_renew)
