"""Pause the cyclic garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause the cyclic garbage collector while long-lived objects are created.

    Python collects after a number of new objects, sometimes among all objects. PyTorch creates so
    many that one such collection takes 60 ms, more than importing a package of operators does.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
