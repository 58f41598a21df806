"""Choose sizes and int arguments, one after the other, so that a call fits the declaration."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence

from opsmith.signature.model import Signature
from opsmith.signature.parameters import SequenceType
from opsmith.signature.sizes import expressions
from opsmith.signature.sizes.conditions import SizeComparison
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

#: The largest size that is looked for.
_FARTHEST = 1 << 14
#: Number of values of an int argument that are looked at.
_FARTHEST_NUMBER = 1000
#: Number of candidates below which more are looked for.
_FEW = 3


class Fitting:
    """The comparisons that the sizes and int arguments of an operator's calls satisfy.

    Beside the author's conditions, no size is negative, and no divisor is zero, nor a factor that a
    size is solved with.
    """

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self.comparisons = [one for c in signature.conditions for one in c.comparisons]
        for equation in signature.equations:
            if not isinstance(equation.factor, Integer):
                self.comparisons.append(SizeComparison(equation.factor, "!=", Integer(0)))
        for expression in (one for owner in signature.owners for one in owner.computed):
            if any(op in expressions.text(expression) for op in "-/%"):
                self.comparisons.append(SizeComparison(expression, ">=", Integer(0)))
        sides = [side for one in self.comparisons for side in (one.left, one.right)]
        for divisor in (one for side in sides for one in _divisors(side)):
            self.comparisons.append(SizeComparison(divisor, "!=", Integer(0)))
        leaves = (leaf for one in self.comparisons for leaf in one.leaves)
        numbers = (abs(leaf.value) for leaf in leaves if isinstance(leaf, Integer))
        self._largest = max(numbers, default=0)
        self._reading: dict[str, list[tuple[SizeComparison, dict[str, None]]]] = {}
        for comparison in self.comparisons:
            variables = _variables(comparison)
            for name in variables:
                self._reading.setdefault(name, []).append((comparison, variables))

    def reads(self, name: str) -> bool:
        """Return whether a comparison depends on a dimension or an argument."""
        return name in self._reading

    def fits(
        self, name: str, value: object, dims: Mapping[str, AnySize], scalars: Arguments
    ) -> bool:
        """Return whether a value of a dimension or an argument fits the known ones."""
        if name in self.signature.by_name:
            scalars = {**scalars, name: value}
        else:
            dims = {**dims, name: value}
        return all(
            comparison.holds(dims, scalars)
            for comparison, variables in self._reading.get(name, ())
            if all(one in dims or scalars.get(one) is not None for one in variables)
        )

    def sizes(
        self,
        name: str,
        preferred: Sequence[int],
        dims: Mapping[str, AnySize],
        scalars: Arguments,
        taken: Collection[int] = (),
    ) -> list[int]:
        """Return the preferred sizes that fit the known ones, and others where these are few.

        Args:
            name: a dimension.
            preferred: the sizes to choose from; others are not below the smallest of them.
            dims: the known sizes.
            scalars: the known arguments.
            taken: the sizes that do not count as a choice.
        """
        if not self.reads(name):
            return list(preferred)
        found = [size for size in preferred if self.fits(name, size, dims, scalars)]
        if len(set(found) - set(taken)) < _FEW:
            largest = max(*preferred, self._largest, *(d for d in dims.values() if type(d) is int))
            beyond = (
                size
                for size in range(min(preferred), min(4 * largest, _FARTHEST) + 1)
                if size not in found and self.fits(name, size, dims, scalars)
            )
            found += [size for size, _ in zip(beyond, range(2 * _FEW), strict=False)]
        return found

    def beyond(
        self, name: str, lowest: int, dims: Mapping[str, AnySize], scalars: Arguments
    ) -> list[int]:
        """Return a few values, from `lowest` upwards, of an int argument that fit the known ones.

        A condition compares it with what can be made of the known numbers: a value far above their
        product is not looked for, as every sample would look for it again.
        """
        known = [n for n in (*dims.values(), *scalars.values()) if type(n) is int]
        product = math.prod(max(abs(n), 1) for n in known)
        reach = min(4 * max(product, self._largest, 2 * _FEW), _FARTHEST_NUMBER)
        every = range(lowest, lowest + reach)
        found = (n for n in every if self.fits(name, n, dims, scalars))
        return list(itertools.islice(found, 2 * _FEW))

    def near(self, name: str, size: int) -> int | None:
        """Return the size nearest to `size` that a dimension may have; `None` if there is none."""
        if not self.reads(name):
            return size
        for distance in range(size + 1):
            for near in (size + distance, size - distance):
                if self.fits(name, near, {}, {}):
                    return near
        return None

    def order(self, known: Collection[str]) -> list[str]:
        """Return the dimensions, and the arguments that must be chosen before some of them.

        Names that a comparison bounds by numbers come first. Of its other names, a name that is a
        whole side of the comparison, or a multiple of something, comes last. Dimensions that no
        comparison reads stay in the order of the declaration.

        Args:
            known: the dimensions and arguments that have been chosen before.
        """
        dims = [name for name in self.signature.dims if name not in known]
        numbers = [
            p.name
            for p in self.signature.parameters
            if p.name in self._reading and p.name not in known
        ]
        left = [*dims, *numbers]
        before: dict[str, set[str]] = {name: set() for name in left}
        bounded = {names[0] for one in self.comparisons if len(names := [*_variables(one)]) == 1}
        # Whatever a list holds, a size can be found that fits it.
        bounded |= {p.name for p in self.signature.parameters if isinstance(p.type, SequenceType)}
        # An equation leaves less choice than an inequality, so it decides first.
        for comparison in sorted(self.comparisons, key=lambda one: one.op != "=="):
            names = [name for name in left if name in _variables(comparison)]
            if len(names) < 2:
                continue
            free = [name for name in names if name not in bounded] or names
            open_ = [name for name in free if not any(name in before[one] for one in names)]
            last = _last(comparison, open_ or free)
            before[last] |= set(names) - {last}
        ranges = {name: self._read_by_range(name) & set(left) for name in numbers}
        found: list[str] = []
        while left:
            ready = [n for n in left if not (before[n] | ranges.get(n, set())) & set(left)]
            # In a circle, whatever is chosen last has to fit.
            chosen = ready or [n for n in left if not ranges.get(n, set()) & set(left)] or left
            found.append(chosen[0])
            left.remove(chosen[0])
        return found

    def _read_by_range(self, name: str) -> set[str]:
        """Return the dimensions and arguments that an argument's range depends on."""
        found: set[str] = set()
        for constraint in self.signature.by_name[name].constraints:
            for expression in constraint.expressions():
                found |= expressions.names(expression)
                found |= {scalar.parameter for scalar in expressions.scalars_of(expression)}
        return found


def _divisors(expression: Expression) -> Iterator[Expression]:
    match expression:
        case Binary(op, left, right):
            if op in ("//", "%") and not isinstance(right, Integer):
                yield right
            yield from _divisors(left)
            yield from _divisors(right)
        case Call(_, arguments):
            for argument in arguments:
                yield from _divisors(argument)


def _variables(comparison: SizeComparison) -> dict[str, None]:
    return {
        leaf.name if isinstance(leaf, Name) else leaf.parameter: None
        for leaf in comparison.leaves
        if not isinstance(leaf, Integer)
    }


def _last(comparison: SizeComparison, names: Sequence[str]) -> str:
    for side in (comparison.left, comparison.right):
        match side:
            case Name(name) | Scalar(name, _) | Binary("%", Name(name), _) if name in names:
                return name
    return names[-1]
