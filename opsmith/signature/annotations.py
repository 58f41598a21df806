"""What an argument's values must be, as a declaration says it with `typing.Annotated`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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
class Positive:
    """Every value is above 0: ``1 <= value`` for integers, ``0 < value`` for floats."""


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


@dataclass(frozen=True)
class Sorted:
    """No value is below the one before it, along the last dimension.

    Attributes:
        first: what the first value is; `None` where it may be any.
        last: what the last value is; `None` where it may be any.
        strict: whether each value is above the one before it.

    Example:
        >>> from typing import Annotated
        >>> from jaxtyping import Int32
        >>> from torch import Tensor
        >>> offsets = Annotated[Int32[Tensor, "B+1"], Sorted(first=0, last="N")]
    """

    first: str | int | None = None
    last: str | int | None = None
    strict: bool = False


@dataclass(frozen=True)
class Total:
    """The values are sizes of parts that have `total` elements together; none is negative.

    Attributes:
        total: what the values add up to, along the last dimension.
        of: ``"shapes"`` where the last dimension holds the shape of a part: its product counts,
            and the products add up to `total`.

    Example:
        >>> from typing import Annotated
        >>> from jaxtyping import Int64
        >>> from torch import Tensor
        >>> lengths = Annotated[Int64[Tensor, "B"], Total("N")]
        >>> heights_and_widths = Annotated[Int64[Tensor, "L 2"], Total("S", of="shapes")]
    """

    total: str | int
    of: Literal["sizes", "shapes"] = "sizes"


@dataclass(frozen=True)
class Starts:
    """The values say where the parts begin whose sizes another argument holds.

    Each value is the sum of the sizes before it, along the last dimension; the first is 0.

    Attributes:
        of: the argument with the sizes (same shape, an integer tensor), or with the shapes of the
            parts (one dimension more: their products are the sizes).
    """

    of: str


@dataclass(frozen=True)
class NonDifferentiable:
    """The operator is not differentiated with respect to this tensor, whatever its dtype.

    No gradient reaches such an argument, a tangent on it is left out, and gradient checks take it
    as it is. Such a result (saved statistics, a table, a mask) requires no gradient.

    Example:
        >>> from typing import Annotated
        >>> from jaxtyping import Float
        >>> from torch import Tensor
        >>> grid = Annotated[Float[Tensor, "H W 2"], NonDifferentiable()]
    """


Annotation = Index | Between | Positive | Extent | Sorted | Total | Starts
