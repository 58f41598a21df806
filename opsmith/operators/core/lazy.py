"""What the dispatcher calls is made when it is first called, so that declaring costs little."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def late(make: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """A function that is what `make` gives when it is first called."""
    made: Callable[..., Any] | None = None

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal made
        if made is None:
            made = make()
        return made(*args, **kwargs)

    return call
