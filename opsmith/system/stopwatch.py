"""Account for what a thread spends its time on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

#: What time is spent on. Any other time is the rest.
KINDS = ("drawing", "truth", "calls", "compiling", "starting", "waiting")


class _Account(threading.local):
    """The seconds of one thread by kind, and the kind that runs now."""

    def __init__(self) -> None:
        self.kind, self.since = "", time.monotonic()
        self.seconds: dict[str, float] = {}

    def turn_to(self, kind: str) -> str:
        """Count time for `kind` from now on, and return the kind before."""
        now, before = time.monotonic(), self.kind
        self.seconds[before] = self.seconds.get(before, 0.0) + now - self.since
        self.kind, self.since = kind, now
        return before


_account = _Account()


@contextmanager
def spending(kind: str = "") -> Iterator[None]:
    """Count the time of the block for a kind; of nested blocks, the innermost counts."""
    before = _account.turn_to(kind)
    try:
        yield
    finally:
        _account.turn_to(before)


@contextmanager
def accounted() -> Iterator[dict[str, float]]:
    """Yield a table that holds, once the block has ended, its seconds by kind."""
    seconds: dict[str, float] = {}
    with spending():
        before, _account.seconds = _account.seconds, {}
        try:
            yield seconds
        finally:
            _account.turn_to("")
            seconds.update(_account.seconds)
            _account.seconds = before
