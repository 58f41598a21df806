"""Let the threads of a process export one at a time."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_turn = threading.RLock()


@contextmanager
def taking_turns() -> Iterator[None]:
    """Wait until no other thread is in such a block, and keep other threads out of it.

    PyTorch's tracers and exporters keep their state in globals, so two threads that export at once
    get errors, or a graph with nodes of the other thread's graph.
    """
    with _turn:
        yield


def _renew() -> None:
    """Give a forked process a new lock: the thread that holds the old lock does not exist there."""
    global _turn
    _turn = threading.RLock()


os.register_at_fork(after_in_child=_renew)
