"""Importing and declaring without collecting garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect no garbage in a block whose objects stay, nor soon after because of them.

    Python looks for garbage after so many new objects, now and then among all that there are. Of
    these PyTorch has so many that it takes 60 ms and more, which is most of what importing a
    package of operators takes.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            if gc.get_count()[0] > gc.get_threshold()[0] and not _is_something_frozen():
                # Both at once count all objects as old ones, and look at none.
                gc.freeze()
                gc.unfreeze()
            gc.enable()


#: Whether something was frozen when it was last asked.
_frozen = False


def _is_something_frozen() -> bool:
    """Whether this process froze objects, which `gc.unfreeze` would thaw.

    To count them takes as long as looking at them, so who froze some is not asked again.
    """
    global _frozen
    _frozen = _frozen or gc.get_freeze_count() > 0
    return _frozen
