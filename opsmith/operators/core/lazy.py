"""Create functions for the dispatcher on their first call, so that declaring costs little."""

from __future__ import annotations

from collections.abc import Callable

from opsmith.untyped import Value


def late(make: Callable[[], Callable[..., object]]) -> Callable[..., Value]:
    """Return a function that calls the function which `make` returns, created on the first call."""
    made: Callable[..., object] | None = None

    def call(*args: object, **kwargs: object) -> object:
        nonlocal made
        if made is None:
            made = make()
        return made(*args, **kwargs)

    return call
