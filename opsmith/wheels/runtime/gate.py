"""In an installed package, in place of ``opsmith.operators.gate``, which binds to one PyTorch.

Calls that may need a derivative pass through Python.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any


@contextlib.contextmanager
def built_beside(operators: Iterable[Any] = ()) -> Iterator[None]:
    """Nothing is built."""
    del operators
    yield


def is_recorded(operator: Any) -> bool:
    """Gradients are recorded in Python."""
    del operator
    return False


def load() -> None:
    """There is no gate."""


def load_recorder() -> None:
    """There is none."""
