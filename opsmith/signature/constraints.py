"""Constraints on values, with parsed expressions and the texts for messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from opsmith.signature.sizes import expressions
from opsmith.signature.sizes.expressions import AnySize, Expression, Integer
from opsmith.untyped import Arguments

LARGEST = 2**63 - 1
"""The limit at which sums and products of sizes stop growing, in C++ too."""


@dataclass(frozen=True)
class Bound:
    """A side of a range: an integer expression, or a float literal."""

    value: Expression | float

    def __str__(self) -> str:
        return repr(self.value) if isinstance(self.value, float) else expressions.text(self.value)

    @property
    def reason(self) -> str | None:
        """The expression as a text; `None` if it is a number."""
        return None if isinstance(self.value, float | Integer) else str(self)

    def number(self, dims: Mapping[str, AnySize], scalars: Arguments) -> AnySize:
        """Return the value of the bound in a call."""
        if isinstance(self.value, float):
            return self.value
        return expressions.evaluate(self.value, dims, scalars)

    def shown(self, dims: Mapping[str, AnySize], scalars: Arguments) -> str:
        """Return the number, followed by the expression if it is not a number: ``9 (N)``."""
        reason = "" if self.reason is None else f" ({self.reason})"
        return f"{self.number(dims, scalars)}{reason}"


class Constraint:
    """A condition on the values of an argument."""

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """The bounds that values are compared with."""
        return ()

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of other tensors whose values the condition depends on."""
        return ()

    @property
    def along(self) -> int:
        """The number of last dimensions that the condition spans; 0 for each value alone."""
        return 1

    def expressions(self) -> tuple[Expression, ...]:
        """Return the integer expressions in the bounds."""
        sides = [bound.value for bound in self.bounds]
        return tuple(side for side in sides if not isinstance(side, float))


@dataclass(frozen=True)
class ValueRange(Constraint):
    """The range of each value by itself.

    ``low <= value`` (``low < value`` if `above`), ``value <= high`` (``value < high`` if
    `exclusive`), and, with `start`, ``start[i] + value[i] <= high`` instead.
    """

    low: Bound | None
    high: Bound | None
    exclusive: bool = False
    start: str | None = None
    above: bool = False

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """The limits of the range, without an open side."""
        return tuple(side for side in (self.low, self.high) if side is not None)

    @property
    def reads(self) -> tuple[str, ...]:
        """The argument with the starts, if there is one."""
        return () if self.start is None else (self.start,)

    @property
    def along(self) -> int:
        """Each value by itself: 0."""
        return 0


@dataclass(frozen=True)
class Column(Constraint):
    """The values in one column of the last dimension are whole numbers in a range."""

    place: int
    range: ValueRange

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """The limits of the range."""
        return self.range.bounds


@dataclass(frozen=True)
class Order(Constraint):
    """Values ascend along the last dimension; with `strict`, no two values are equal."""

    first: Bound | None
    last: Bound | None
    strict: bool = False

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """The required first and last value, if given."""
        return tuple(end for end in (self.first, self.last) if end is not None)

    @property
    def text(self) -> str:
        """The expected order, for messages."""
        return "strictly increasing values" if self.strict else "sorted values"


@dataclass(frozen=True)
class Sum(Constraint):
    """The values, or with `shapes` the products along the last dimension, add up to `total`."""

    total: Bound
    shapes: bool = False

    @property
    def along(self) -> int:
        """The dimensions that are summed: 1, or 2 for products of rows."""
        return 2 if self.shapes else 1

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """The required sum."""
        return (self.total,)

    def text(self, found: object) -> str:
        """Return the sum that was found, for messages."""
        return f"has shapes of {found} elements together" if self.shapes else f"adds up to {found}"


@dataclass(frozen=True)
class PartStarts(Constraint):
    """Each value is the sum of the sizes before it in `of`, or of the products of its rows."""

    of: str
    shapes: bool = False

    @property
    def reads(self) -> tuple[str, ...]:
        """The argument with the sizes of the parts."""
        return (self.of,)

    @property
    def text(self) -> str:
        """The source of the expected number, for messages."""
        what = "elements of the shapes in" if self.shapes else "sum of"
        return f"the {what} {self.of!r} before it"


def range_limits(
    range_: ValueRange, dims: Mapping[str, AnySize], scalars: Arguments
) -> tuple[AnySize, AnySize]:
    """Return the lowest and highest allowed value (but see `ValueRange.above`); `None` if open."""
    low = None if range_.low is None else range_.low.number(dims, scalars)
    if range_.high is None:
        return low, None
    high = range_.high.number(dims, scalars)
    return low, high - 1 if range_.exclusive else high


def range_text(range_: ValueRange, dims: Mapping[str, AnySize], scalars: Arguments) -> str:
    """Return the condition with its numbers, followed by its expressions in parentheses."""
    low, high = range_limits(range_, dims, scalars)
    if range_.start is not None:
        text = f"0 <= value and {range_.start} + value <= {high}"
    else:
        left = "" if low is None else f"{low} {'<' if range_.above else '<='} "
        right = "" if high is None else f" <= {high}"
        if range_.exclusive:
            right = f" < {high + 1}"
        text = f"{left}value{right}"
    reasons = [bound.reason for bound in range_.bounds if bound.reason is not None]
    return f"{text} ({', '.join(reasons)})" if reasons else text
