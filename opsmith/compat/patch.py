"""The one way in which opsmith replaces an attribute of another package."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Patch:
    """Replaces an attribute of another package's module, class or object for a block.

    Blocks may overlap, in one thread or in several: the first puts the replacement in place, and
    the last puts back what was there. The replacement is therefore in place for every thread of the
    process. Where it must not act in a thread that asked for nothing, it looks up what its own
    thread asked for (`threading.local`).

    Args:
        find: imports what has the attribute; an `ImportError` says that this release has none, and
            then nothing is replaced.
        name: the attribute. Where there is none of this name, nothing is replaced.
        make: takes what the attribute is, and returns what it is to be.
    """

    def __init__(self, find: Callable[[], Any], name: str, make: Callable[[Any], Any]) -> None:
        self._find, self._name, self._make = find, name, make
        self._lock = threading.Lock()
        self._blocks = 0
        self._put_back: Callable[[], None] | None = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Replace the attribute for a block."""
        with self._lock:
            if not self._blocks:
                self._put_back = self._replace()
            self._blocks += 1
        try:
            yield
        finally:
            with self._lock:
                self._blocks -= 1
                if not self._blocks and self._put_back is not None:
                    self._put_back()

    def _replace(self) -> Callable[[], None] | None:
        """Put the replacement in place, and return what takes it away."""
        try:
            owner = self._find()
        except ImportError:
            return None
        if not hasattr(owner, self._name):
            return None
        own = vars(owner)
        described = inspect.getattr_static(type(owner), self._name, None)
        # A descriptor of the owner's class (a setting of PyTorch's, say) is set through it.
        if self._name in own or hasattr(described, "__set__"):
            # A class's own static methods and properties are found as they are in its dictionary.
            before = own[self._name] if self._name in own else getattr(owner, self._name)
            setattr(owner, self._name, self._make(before))
            return lambda: setattr(owner, self._name, before)
        setattr(owner, self._name, self._make(getattr(owner, self._name)))
        return lambda: delattr(owner, self._name)
