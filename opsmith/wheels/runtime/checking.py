"""In an installed package, in place of ``opsmith.signature.checking``: most was checked before.

Looking again would be a third of what importing the package takes. What it declares by another
name than when its wheel was built, as a function may that makes operators, is checked as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NoReturn

from opsmith.signature.model import Signature
from opsmith.signature.shapes import Shape, ShapeError

_CHECKED = frozenset("{operators}".split())


def was_checked(qualname: str) -> bool:
    """Whether an operator of this name needs no look at what it declares."""
    return qualname in _CHECKED


def shape_of(text: str, scalars: Collection[str]) -> Shape:
    """The shape that a text says, which is parsed when somebody asks for its dimensions."""
    return Shape(text, tuple(sorted(scalars)))


def check(signature: Signature, refuse: Callable[[str], NoReturn]) -> None:
    """Call `refuse` with the first thing in `signature` that cannot hold."""
    if was_checked(signature.qualname):
        return
    from opsmith.signature import validity

    owners = [
        *((f"parameter '{p.name}: {p.annotation}'", p.tensor_type) for p in signature.parameters),
        *((f"the return annotation {r.type}", r.tensor_type) for r in signature.results),
    ]
    for owner, type_ in owners:
        try:
            if type_ is not None and type_.shape is not None:
                type_.shape.binds()
        except ShapeError as error:
            refuse(f"{owner}: {error}")
    validity.check(signature, refuse)
