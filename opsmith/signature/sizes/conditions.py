"""Comparisons of sizes and int arguments that hold in every call: ``H % K == 0``."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from opsmith.signature.sizes import expressions
from opsmith.signature.sizes.expressions import (
    AnySize,
    Binary,
    Call,
    Expression,
    Integer,
    Name,
    Scalar,
)
from opsmith.untyped import Arguments

COMPARE: dict[str, Callable[[AnySize, AnySize], AnySize]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class SizeComparison:
    """``left op right`` with op one of ``== != < <= > >=``."""

    left: Expression
    op: str
    right: Expression

    def holds(self, dims: Mapping[str, AnySize], scalars: Arguments) -> bool:
        """Return whether the comparison is true; a division by zero is not.

        Raises:
            KeyError: a dimension or an argument has no value.
        """
        try:
            left = expressions.evaluate(self.left, dims, scalars)
            right = expressions.evaluate(self.right, dims, scalars)
        except ZeroDivisionError:
            return False
        return bool(COMPARE[self.op](left, right))

    @property
    def leaves(self) -> tuple[Integer | Name | Scalar, ...]:
        """The numbers, dimensions and arguments, left to right."""
        return expressions.leaves(self.left) + expressions.leaves(self.right)


@dataclass(frozen=True)
class Condition:
    """A condition on the sizes and int arguments of a call.

    Attributes:
        text: the condition as the author wrote it.
        comparisons: comparisons that must all hold; several if the author wrote a chain.
    """

    text: str
    comparisons: tuple[SizeComparison, ...]

    def holds(self, dims: Mapping[str, AnySize], scalars: Arguments) -> bool:
        """Return whether every comparison is true; see `SizeComparison.holds`."""
        return all(comparison.holds(dims, scalars) for comparison in self.comparisons)

    def expressions(self) -> tuple[Expression, ...]:
        """Return both sides of every comparison."""
        return tuple(side for one in self.comparisons for side in (one.left, one.right))

    @property
    def dims(self) -> tuple[str, ...]:
        """The dimensions that the condition reads, left to right."""
        leaves = (leaf for one in self.comparisons for leaf in one.leaves)
        return tuple(dict.fromkeys(leaf.name for leaf in leaves if isinstance(leaf, Name)))


def parse(text: str, scalars: Collection[str]) -> Condition:
    """Parse ``left op right``, or a chain: ``0 < D <= 256``.

    Raises:
        ExpressionError: the text is not such a comparison; the message says why.
    """
    first, *rest = expressions.parse_comparison(text, scalars)
    found, left = [], first[1]
    for op, right in rest:
        found.append(SizeComparison(left, op, right))
        left = right
    return Condition(text, tuple(found))


def decided(comparison: SizeComparison) -> bool | None:
    """Return what a comparison is for all sizes; `None` if it depends on them."""
    low, high = _range(Binary("-", comparison.left, comparison.right))
    if comparison.left == comparison.right:
        low = high = 0
    below, above = high is not None and high < 0, low is not None and low > 0
    never_above, never_below = high is not None and high <= 0, low is not None and low >= 0
    same = low == high == 0
    true, false = {
        "==": (same, below or above),
        "!=": (below or above, same),
        "<": (below, never_below),
        "<=": (never_above, above),
        ">": (above, never_above),
        ">=": (never_below, below),
    }[comparison.op]
    return True if true else False if false else None


_Range = tuple[int | None, int | None]


def _range(expression: Expression) -> _Range:
    """Return bounds of the values that an expression has for any sizes; `None` is an open side."""
    match expression:
        case Integer(value):
            return value, value
        case Name():
            return 0, None
        case Scalar():
            return None, None
        case Binary("+", left, right):
            return _sum(_range(left), _range(right))
        case Binary("-", left, right):
            low, high = _range(right)
            return _sum(
                _range(left), (None if high is None else -high, None if low is None else -low)
            )
        case Binary("%", _, Integer(value)) if value > 0:
            return 0, value - 1
        case Binary("%" | "*" | "//", left, right):
            (low, high), (other_low, other_high) = _range(left), _range(right)
            if low is None or other_low is None or low < 0 or other_low < 0:
                return None, None
            if expression.op == "*":
                both = high is not None and other_high is not None
                return low * other_low, high * other_high if both else None  # type: ignore[operator]
            return 0, None
        case Call(_, arguments):
            ranges = [_range(argument) for argument in arguments]
            pick = min if expression.function == "min" else max
            lows, highs = [low for low, _ in ranges], [high for _, high in ranges]
            return (
                None if None in lows else pick(low for low in lows if low is not None),
                None if None in highs else pick(high for high in highs if high is not None),
            )
    return None, None


def _sum(one: _Range, other: _Range) -> _Range:
    (low, high), (other_low, other_high) = one, other
    return (
        None if low is None or other_low is None else low + other_low,
        None if high is None or other_high is None else high + other_high,
    )


def contradict(one: Condition, other: Condition) -> bool:
    """Return whether two conditions are seen to allow no sizes together: ``H > 5``, ``H < 3``.

    Adds up multiples of two inequalities, as Fourier and Motzkin's elimination does, until no name
    is left. Conditions that contradict each other in another way are not seen.
    """
    return any(
        _sum_is_negative(a, b)
        for first in one.comparisons
        for second in other.comparisons
        for a in _not_negative(first)
        for b in _not_negative(second)
    )


_Linear = tuple[dict[Expression, int], int]
"""The factor of each name or indivisible expression, and the number that is added."""


def _not_negative(comparison: SizeComparison) -> list[_Linear]:
    """Return what a comparison of integers says is 0 or greater: ``a < b`` is ``b - a - 1``."""
    up = _linear(Binary("-", comparison.left, comparison.right))
    down = _linear(Binary("-", comparison.right, comparison.left))
    match comparison.op:
        case "==":
            return [up, down]
        case ">" | ">=":
            return [(up[0], up[1] - (comparison.op == ">"))]
        case "<" | "<=":
            return [(down[0], down[1] - (comparison.op == "<"))]
    return []


def _sum_is_negative(one: _Linear, other: _Linear) -> bool:
    (factors, number), (other_factors, other_number) = one, other
    if factors.keys() != other_factors.keys() or not factors:
        return False
    first = next(iter(factors))
    scale, other_scale = abs(other_factors[first]), abs(factors[first])
    gone = all(scale * factors[key] + other_scale * other_factors[key] == 0 for key in factors)
    return gone and scale * number + other_scale * other_number < 0


def _linear(expression: Expression, factor: int = 1) -> _Linear:
    match expression:
        case Integer(value):
            return {}, factor * value
        case Binary("*", Integer(value), part) | Binary("*", part, Integer(value)):
            return _linear(part, factor * value)
        case Binary("+" | "-" as op, left, right):
            factors, number = _linear(left, factor)
            others, more = _linear(right, factor if op == "+" else -factor)
            for key, value in others.items():
                factors[key] = factors.get(key, 0) + value
            return {key: value for key, value in factors.items() if value}, number + more
    return {expression: factor}, 0


def unsatisfied(
    condition: Condition, dims: Mapping[str, AnySize], scalars: Arguments
) -> Iterator[tuple[AnySize, Callable[[], str]]]:
    """Yield each comparison with its message, which C++ gives in the same words.

    A size may be symbolic; then so is the comparison.
    """
    said = f"the arguments do not satisfy {condition.text}"
    for one in condition.comparisons:
        try:
            left = expressions.evaluate(one.left, dims, scalars)
            right = expressions.evaluate(one.right, dims, scalars)
        except ZeroDivisionError:
            yield False, lambda: f"{said}, which divides by zero."
            return
        yield (
            COMPARE[one.op](left, right),
            lambda left=left, right=right, op=one.op: (  # type: ignore[misc]
                f"{said}: {left} {op} {right} is false."
            ),
        )
