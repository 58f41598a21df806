"""Something of PyTorch's, or of an exporter's, that is another while exports run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Replacement:
    """An attribute of somebody else's class or module that is replaced in the length of a block.

    Blocks may be in several threads at once: it is itself again after the last of them.

    Args:
        find: imports the class or module; an `ImportError` says that this release has none.
        name: the attribute's. Where there is no such attribute, nothing is replaced.
        make: from what it is, what it is to be.
    """

    def __init__(self, find: Callable[[], Any], name: str, make: Callable[[Any], Any]) -> None:
        self._find, self._name, self._make = find, name, make
        self._lock = threading.Lock()
        self._blocks = 0
        self._original: Any = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """The block."""
        try:
            owner = self._find()
        except ImportError:
            yield
            return
        with self._lock:
            self._blocks += 1
            if self._blocks == 1 and self._name in vars(owner):
                self._original = vars(owner)[self._name]
                setattr(owner, self._name, self._make(self._original))
        try:
            yield
        finally:
            with self._lock:
                self._blocks -= 1
                if not self._blocks and self._original is not None:
                    setattr(owner, self._name, self._original)
