"""Value ranges: what an argument's elements may be, written with `typing.Annotated`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Index:
    """Every value is an index into something of `bound` elements: ``0 <= value < bound``.

    Example:
        >>> from typing import Annotated
        >>> from jaxtyping import Int32
        >>> from torch import Tensor
        >>> ranks = Annotated[Int32[Tensor, "P"], Index("B*N*H*W")]
    """

    bound: str | int


@dataclass(frozen=True)
class Between:
    """Every value lies in ``low <= value <= high``; `None` leaves that side open."""

    low: str | float | None = None
    high: str | float | None = None


@dataclass(frozen=True)
class Extent:
    """Every value is the length of a run that begins at the same element of another argument.

    ``value >= 0`` and ``start + value <= bound``, element by element.

    Attributes:
        start: the argument (same shape, an integer tensor) that says where each run begins.
        bound: how many elements there are to run over.
    """

    start: str
    bound: str | int
