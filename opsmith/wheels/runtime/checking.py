"""Replace ``opsmith.signature.checking`` in an installed package, to skip repeated checks.

Checking again would take a third of the time of importing the package. An operator whose name was
not declared when the wheel was built, as by a function that makes operators, is checked as usual.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NoReturn

from opsmith.signature.model import Signature
from opsmith.signature.sizes.shapes import Shape, ShapeError

_CHECKED = frozenset("{operators}".split())


def was_checked(qualname: str) -> bool:
    """Return whether the declaration of an operator of this name was checked for the wheel."""
    return qualname in _CHECKED


def shape_of(text: str, scalars: Collection[str]) -> Shape:
    """Return the shape of a text, which is parsed when its dimensions are first needed."""
    return Shape(text, tuple(sorted(scalars)))


def check(signature: Signature, refuse: Callable[[str], NoReturn]) -> None:
    """Call `refuse` with the first contradiction in `signature`, if there is one."""
    if was_checked(signature.qualname):
        return
    from opsmith.signature import validity

    owners = [
        *((f"parameter '{p.name}: {p.annotation}'", p.shape) for p in signature.parameters),
        *((f"the return annotation {r.type}", r.shape) for r in signature.results),
    ]
    for owner, shape in owners:
        try:
            if shape is not None:
                shape.binds()
        except ShapeError as error:
            refuse(f"{owner}: {error}")
    validity.check(signature, refuse)
