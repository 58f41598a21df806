"""Conditions on an argument's values, which a declaration states with `typing.Annotated`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Index:
    """Require each value to be an index below `bound`: ``0 <= value < bound``.

    Attributes:
        bound: the number of what the index chooses from.
        column: the only column of the last dimension that holds an index, counted from 0; `None`
            if each value is an index. A column of floats holds whole numbers then.

    Example:
        >>> from typing import Annotated
        >>> from jaxtyping import Float, Int32
        >>> from torch import Tensor
        >>> ranks = Annotated[Int32[Tensor, "P"], Index("B*N*H*W")]
        >>> rois = Annotated[Float[Tensor, "R 5"], Index("N", column=0)]
    """

    bound: str | int
    column: int | None = field(default=None, kw_only=True)

    def __repr__(self) -> str:
        column = "" if self.column is None else f", column={self.column!r}"
        return f"Index(bound={self.bound!r}{column})"


@dataclass(frozen=True)
class Between:
    """Require each value to be in ``low <= value <= high``; `None` leaves that side open."""

    low: str | float | None = None
    high: str | float | None = None


@dataclass(frozen=True)
class Positive:
    """Require each value to be above 0: ``1 <= value`` for integers, ``0 < value`` for floats."""


@dataclass(frozen=True)
class Extent:
    """Require each value to be the length of a run whose start is in another argument.

    ``value >= 0`` and ``start + value <= bound``, element by element.

    Attributes:
        start: the argument (same shape, an integer tensor) with the start of each run.
        bound: the number of elements that the runs are in.
    """

    start: str
    bound: str | int


@dataclass(frozen=True)
class Sorted:
    """Require that no value is below the one before it, along the last dimension.

    Every call tests this for an argument. For a result, `opsmith check` tests it, also for the
    reference's own result.

    Attributes:
        first: the required first value; `None` if it may be any.
        last: the required last value; `None` if it may be any.
        strict: whether each value must be above the one before it.

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
    """Require values to be sizes of parts that have `total` elements together; none is negative.

    Attributes:
        total: the required sum of the values, along the last dimension.
        of: ``"shapes"`` if the last dimension holds the shape of a part. Then the products of the
            shapes must add up to `total`.

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
    """Require values to be the starts of the parts whose sizes another argument holds.

    Each value is the sum of the sizes before it, along the last dimension; the first is 0.

    Attributes:
        of: the argument with the sizes (same shape, an integer tensor), or with the shapes of the
            parts (one dimension more: their products are the sizes).
    """

    of: str


@dataclass(frozen=True)
class NonDifferentiable:
    """Leave this tensor out of differentiation, whatever its dtype.

    No gradient reaches such an argument, a tangent on it is ignored, and gradient checks do not
    vary it. Such a result (saved statistics, a table, a mask) requires no gradient.

    Example:
        >>> from typing import Annotated
        >>> from jaxtyping import Float
        >>> from torch import Tensor
        >>> grid = Annotated[Float[Tensor, "H W 2"], NonDifferentiable()]
    """


@dataclass(frozen=True)
class Unspecified:
    """Leave open what the operator does where this tensor holds NaN, or infinity.

    Nothing is enforced, so that a call costs nothing for it. `opsmith check` samples no such
    argument.

    Attributes:
        nan: whether results are unspecified if a value is NaN.
        inf: whether results are unspecified if a value is infinite.

    Example:
        >>> from typing import Annotated
        >>> from jaxtyping import Float
        >>> from torch import Tensor
        >>> scores = Annotated[Float[Tensor, "N"], Unspecified(nan=True, inf=True)]
    """

    nan: bool = False
    inf: bool = False

    @property
    def kinds(self) -> tuple[str, ...]:
        """The values in words: ``("NaN", "infinity")``."""
        return tuple(kind for kind, open_ in (("NaN", self.nan), ("infinity", self.inf)) if open_)


class Philox:
    """Declare the seed and offset of a counter-based random generator, which eager calls draw.

    In the schema, to a kernel and in every runtime, the argument is a tensor of two int64 on the
    call's device: seed and offset. A call that leaves it out, or passes a ``torch.Generator`` in
    its place, draws both from the generator. `opsmith.philox` and ``<opsmith/philox.h>`` compute
    the same numbers from it. The default `None` may be written, for type checkers to know that the
    argument may be left out.

    Example:
        >>> import opsmith, torch
        >>> from jaxtyping import Float
        >>> from torch import Tensor
        >>> @opsmith.op("docs::jitter")
        ... def jitter(x: Float[Tensor, "*n"], rng: opsmith.Philox = None) -> Float[Tensor, "*n"]:
        ...     return x + opsmith.philox.uniform(rng, x.shape, dtype=x.dtype)
        >>> _ = torch.manual_seed(0)
        >>> first = jitter(torch.zeros(3))
        >>> _ = torch.manual_seed(0)
        >>> torch.equal(jitter(torch.zeros(3)), first)
        True
    """


@dataclass(frozen=True)
class Selects:
    """Accept each index that selects as good a value as the reference's index does.

    Where several candidates are equal, or rounding decides which one is the least, the indices of
    a kernel and of the reference may differ, and both are right. A row that the reference fills
    with different indices must not have an index twice.

    Attributes:
        by: the values that the candidates have: the name of a tensor argument or of another result
            (``out0``), or a function whose parameters are arguments of the operator, by name.
        dim: the dimension of these values along which the index selects. The index has their other
            dimensions, and any number of places along `dim`, or no such dimension.

    Example:
        >>> from typing import Annotated
        >>> from jaxtyping import Int64
        >>> from torch import Tensor
        >>> best = Annotated[Int64[Tensor, "N"], Selects("scores")]
        >>> def distances(a: Tensor, b: Tensor) -> Tensor:
        ...     return (a[:, None] - b).square().sum(-1)
        >>> nearest = Annotated[Int64[Tensor, "N 3"], Selects(distances)]
    """

    by: str | Callable[..., Any]  # a tensor, which this package cannot name
    dim: int = -1

    def __repr__(self) -> str:
        by = getattr(self.by, "__name__", repr(self.by))
        return f"Selects({by}{'' if self.dim == -1 else f', dim={self.dim!r}'})"


Annotation = Index | Between | Positive | Extent | Sorted | Total | Starts
Mark = NonDifferentiable | Unspecified | Selects
