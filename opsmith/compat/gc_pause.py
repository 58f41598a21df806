"""Pause the cyclic garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause the cyclic garbage collector while objects are created that live on.

    Python collects after so many new objects, at times among all that there are. PyTorch has so
    many that one such collection takes 60 ms, more than importing a package of operators does.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
