"""Replace attributes of other packages, in the one way that opsmith uses."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Patch:
    """Replaces an attribute of another package's module, class or object for a block.

    Blocks may overlap, in one thread or in several: the first installs the replacement, and the
    last restores the original. So the replacement is in place for every thread of the process. If
    it must act only in threads that entered the block, it has to check a `threading.local`.

    Args:
        find: imports and returns the owner of the attribute; if it raises `ImportError`, because
            this release does not have the owner, nothing is replaced.
        name: the name of the attribute; if the owner does not have it, nothing is replaced.
        make: receives the original and returns the replacement.
    """

    def __init__(self, find: Callable[[], object], name: str, make: Callable[..., object]) -> None:
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
        """Install the replacement, and return a function that restores the original."""
        try:
            owner = self._find()
        except ImportError:
            return None
        if not hasattr(owner, self._name):
            return None
        own = vars(owner)
        described = inspect.getattr_static(type(owner), self._name, None)
        # Set an attribute that is a descriptor of the owner's class (a setting of PyTorch's, say)
        # through it.
        if self._name in own or hasattr(described, "__set__"):
            # Read static methods and properties of a class from its dictionary, which has them
            # unbound.
            before = own[self._name] if self._name in own else getattr(owner, self._name)
            setattr(owner, self._name, self._make(before))
            return lambda: setattr(owner, self._name, before)
        setattr(owner, self._name, self._make(getattr(owner, self._name)))
        return lambda: delattr(owner, self._name)
