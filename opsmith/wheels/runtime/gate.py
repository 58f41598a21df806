"""In an installed package, in place of ``opsmith.operators.gate``, which binds to one PyTorch.

Calls that may need a derivative pass through Python.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def built_beside() -> Iterator[None]:
    """Nothing is built."""
    yield


def load() -> None:
    """There is no gate."""


def load_recorder() -> None:
    """There is none."""
