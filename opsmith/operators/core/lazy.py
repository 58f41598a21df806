"""Create functions for the dispatcher on their first call, so that declaring costs little."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def late(make: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """Return a function that calls the function which `make` returns, created on the first call."""
    made: Callable[..., Any] | None = None

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal made
        if made is None:
            made = make()
        return made(*args, **kwargs)

    return call
