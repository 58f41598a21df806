"""Check a declaration where it is declared.

A wheel has ``opsmith/wheels/runtime/checking.py`` in place of this file, since its declarations
were checked when it was built.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NoReturn

from opsmith.signature import validity
from opsmith.signature.model import Signature
from opsmith.signature.sizes import shapes
from opsmith.signature.sizes.shapes import Shape


def was_checked(qualname: str) -> bool:
    """Return whether the declaration of an operator of this name needs no check."""
    del qualname
    return False


def shape_of(text: str, scalars: Collection[str]) -> Shape:
    """Return the shape in a text; see `shapes.parse`.

    Raises:
        ShapeError: the message quotes the wrong dimension.
    """
    return shapes.parse(text, scalars)


def check(signature: Signature, refuse: Callable[[str], NoReturn]) -> None:
    """Call `refuse` with the first contradiction in `signature`, if there is one."""
    validity.check(signature, refuse)
