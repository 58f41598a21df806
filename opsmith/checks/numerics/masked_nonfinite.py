"""Right results where irrelevant elements of the arguments are infinite or NaN.

A reference may mask elements by multiplying them by zero. Zero times NaN is NaN, so a masked NaN
spreads to the results. A kernel that skips masked elements is right as well. If the reference gives
NaN, a result element may therefore also have the value that the reference gives with finite numbers
in place of the irrelevant infinite and NaN ones. They are irrelevant if the result element stays
the same for different finite numbers in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from opsmith.checks.numerics.sensitivity import is_inexact
from opsmith.operators.core.arguments import every_tensor_in, map_tensors

#: Numbers that replace an infinite or NaN one, to see whether it matters.
_STAND_INS = (1.0, -2.5, 200.0)
#: Largest number of infinite and NaN elements that are replaced one by one.
_MOST = 256
#: Largest number of different sets of such elements that result elements depend on.
_MOST_KINDS = 64

Arguments = Mapping[str, Any]


class HasValues(Protocol):
    """The right results of a call."""

    @property
    def values(self) -> list[Tensor]:
        """Return the results in double precision."""


Expected = TypeVar("Expected", bound=HasValues)


class Irrelevant(Generic[Expected]):
    """Right results without irrelevant infinite and NaN elements of the arguments.

    Args:
        evaluate: function that returns the results for other arguments, in double precision.
        expected: function that returns the right results for other arguments; `None` if the
            reference rejects them.
    """

    def __init__(
        self,
        arguments: Arguments,
        evaluate: Callable[[Arguments], list[Tensor]],
        expected: Callable[[Arguments], Expected | None],
    ) -> None:
        self._arguments = arguments
        self._evaluate = evaluate
        self._expected = expected
        self._count = sum(int((~t.isfinite()).sum()) for t in _inexact(arguments))
        self._kept: dict[tuple[bool, ...], Expected | None] = {}

    def without(self, position: int, asked: Tensor) -> Iterator[tuple[Expected, Tensor]]:
        """Yield right results without some special elements, and masks of independent elements.

        Special elements are the infinite and NaN elements of the arguments. A mask marks the result
        elements that do not depend on the special elements that were replaced.

        Args:
            position: index of the result.
            asked: mask of the result elements to explain.
        """
        if not self._count:
            return
        for found, independent in self._by_argument:
            yield found, independent[position]
        if self._depends is None or self._depends[position].shape[1:] != asked.shape:
            return
        depends = self._depends[position].view(self._count, -1)
        kinds = {tuple(depends[:, place].tolist()) for place in asked.flatten().nonzero().flatten()}
        for kind in sorted(kinds)[:_MOST_KINDS]:
            if any(kind) and not all(kind):
                kept = self._keeping(kind)
                if kept is not None:
                    same = (depends == torch.tensor(kind)[:, None]).all(0)
                    yield kept, same.view(asked.shape)

    @cached_property
    def _by_argument(self) -> list[tuple[Expected, list[Tensor]]]:
        """Replace the special elements of all arguments together, and of each argument alone."""
        special = [
            name
            for name, value in self._arguments.items()
            if any(not t.isfinite().all() for t in _inexact({name: value}))
        ]
        groups = [special, *([name] for name in special)] if len(special) > 1 else [special]
        return [found for names in groups if (found := self._without_arguments(names))]

    def _without_arguments(self, names: list[str]) -> tuple[Expected, list[Tensor]] | None:
        own = [
            {
                name: map_tensors(value, lambda t: _finite(t, number)) if name in names else value  # noqa: B023
                for name, value in self._arguments.items()
            }
            for number in _STAND_INS
        ]
        found = self._expected(own[0])
        if found is None:
            return None
        try:
            others = [self._evaluate(one) for one in own[1:]]
        except Exception:
            return None
        independent = []
        for position, value in enumerate(found.values):
            same = [other[position] for other in others if other[position].shape == value.shape]
            equal = torch.full(value.shape, len(same) == len(others))
            for other in same:
                equal &= other.detach() == value
            independent.append(equal)
        return found, independent

    @cached_property
    def _depends(self) -> list[Tensor] | None:
        """Find the result elements that depend on each special element.

        Returns:
            For each result a mask with the special elements in the first dimension; `None` if there
            are too many of them, or if the reference rejects the numbers that replace them.
        """
        if self._count > _MOST:
            return None
        first, *others = _STAND_INS
        numbers = torch.full((self._count,), first, dtype=torch.float64)
        none = torch.zeros(self._count, dtype=torch.bool)
        try:
            finite = self._evaluate(self._with(none, numbers))
            depends = [torch.zeros(self._count, *one.shape, dtype=torch.bool) for one in finite]
            for place in range(self._count):
                for number in others:
                    moved = numbers.clone()
                    moved[place] = number
                    results = self._evaluate(self._with(none, moved))
                    for matrix, result, before in zip(depends, results, finite, strict=True):
                        same = (result == before) | (result.isnan() & before.isnan())
                        matrix[place] |= ~same.detach()
        except Exception:
            return None
        return depends

    def _keeping(self, kind: tuple[bool, ...]) -> Expected | None:
        """Return the right results if only the special elements in `kind` are kept."""
        if kind not in self._kept:
            numbers = torch.full((self._count,), _STAND_INS[0], dtype=torch.float64)
            self._kept[kind] = self._expected(self._with(torch.tensor(kind), numbers))
        return self._kept[kind]

    def _with(self, keep: Tensor, numbers: Tensor) -> dict[str, Any]:
        """Return the arguments with a number in place of each special element that is not kept."""
        place = 0

        def replaced(tensor: Tensor) -> Tensor:
            nonlocal place
            if not is_inexact(tensor):
                return tensor
            own, special = tensor.clone(), ~tensor.isfinite()
            here = slice(place, place + int(special.sum()))
            place = here.stop
            own[special] = torch.where(keep[here], own[special], numbers[here].to(own.dtype))
            return own

        return {name: map_tensors(value, replaced) for name, value in self._arguments.items()}


def _inexact(arguments: Arguments) -> list[Tensor]:
    return [tensor for _, tensor in every_tensor_in(arguments) if is_inexact(tensor)]


def _finite(tensor: Tensor, number: float) -> Tensor:
    return torch.where(tensor.isfinite(), tensor, number) if is_inexact(tensor) else tensor
