"""What is right where arguments are infinite or NaN, and do not matter.

A reference may multiply what does not count by zero, and zero times NaN is NaN: what a mask hides
reaches every result. A kernel that leaves out what does not count is right as well. So where the
reference gives NaN, an element may also have the value that it has without those infinite and NaN
numbers which it does not depend on: it stays the same, whatever finite number stands in the place
of any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from opsmith.checks.numerics.sensitivity import is_inexact
from opsmith.operators.core.arguments import every_tensor_in, map_tensors

#: What stands in for one that is infinite or NaN, to see whether it matters.
_STAND_INS = (1.0, -2.5, 200.0)
#: So many are looked at one by one.
_MOST = 256
#: For so many elements that depend on different ones.
_MOST_KINDS = 64

Arguments = Mapping[str, Any]


class HasValues(Protocol):
    """Right results of a call."""

    @property
    def values(self) -> list[Tensor]:
        """The results in double precision."""


Expected = TypeVar("Expected", bound=HasValues)


class Irrelevant(Generic[Expected]):
    """What is right without infinite and NaN arguments that do not matter.

    Args:
        arguments: a call's, by name.
        evaluate: the results for other arguments, in double precision.
        expected: what is right for other arguments; `None` where the reference refuses them.
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
        """What is right without some of them, and the elements that depend on none of these.

        Args:
            position: which result.
            asked: the elements that are asked for.
        """
        if not self._count:
            return
        for found, independent in self._by_argument:
            yield found, independent[position]
        if self._depends is None or self._depends[position].shape[1:] != asked.shape:
            return
        depends = self._depends[position].flatten(1)
        kinds = {tuple(depends[:, place].tolist()) for place in asked.flatten().nonzero().flatten()}
        for kind in sorted(kinds)[:_MOST_KINDS]:
            if any(kind) and not all(kind):
                kept = self._keeping(kind)
                if kept is not None:
                    same = (depends == torch.tensor(kind)[:, None]).all(0)
                    yield kept, same.view(asked.shape)

    @cached_property
    def _by_argument(self) -> list[tuple[Expected, list[Tensor]]]:
        """For all arguments together, and for each alone."""
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
        """For each result which of its elements depend on each of them, in the first dimension.

        `None` where there are too many, or the reference does not take what stands in.
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
        """What is right where some of them stay as they are."""
        if kind not in self._kept:
            numbers = torch.full((self._count,), _STAND_INS[0], dtype=torch.float64)
            self._kept[kind] = self._expected(self._with(torch.tensor(kind), numbers))
        return self._kept[kind]

    def _with(self, keep: Tensor, numbers: Tensor) -> dict[str, Any]:
        """The arguments, with a number in the place of each of them that is not kept."""
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
