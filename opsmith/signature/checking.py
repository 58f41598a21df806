"""When a declaration is checked: where it stands.

A wheel carries ``opsmith/wheels/runtime/checking.py`` in place of this, for what its package
declares was checked when it was built.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NoReturn

from opsmith.signature import shapes, validity
from opsmith.signature.model import Signature
from opsmith.signature.shapes import Shape


def was_checked(qualname: str) -> bool:
    """Whether an operator of this name needs no look at what it declares."""
    del qualname
    return False


def shape_of(text: str, scalars: Collection[str]) -> Shape:
    """The shape that a text says; see `shapes.parse`.

    Raises:
        ShapeError: with the offending dimension quoted.
    """
    return shapes.parse(text, scalars)


def check(signature: Signature, refuse: Callable[[str], NoReturn]) -> None:
    """Call `refuse` with the first thing in `signature` that cannot hold."""
    validity.check(signature, refuse)
