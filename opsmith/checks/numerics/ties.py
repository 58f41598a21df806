"""Integers and sizes that rounding decides: the index of a minimum, or a count above a limit.

An error bound cannot decide which of these are right. The reference is therefore run in double
precision with every step rounded up or down at random (`rounding`), and the results of these runs
are right as well.

If many distances are equal, each is the shortest in few of these runs. Where the reference chooses
along a dimension (``argmin``, ``topk``, ``sort``), the runs therefore also record the range in
which rounding moves each candidate. A last run makes the kernel's own choice wherever rounding may
make it as good as the reference's.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.cases.layouts import plain
from opsmith.checks.numerics.double_run import CHOICES
from opsmith.checks.numerics.rounding import RandomRounding, is_wide
from opsmith.compat.torch_ops import overload_schema

_SAMPLES = 12
#: Number of further runs if the first ones differ in integers, sizes, or finiteness.
_MORE = 48
_aten = torch.ops.aten
#: Largest number of dimensions of a result that are tried in every order.
_ORDERED = 4
#: Largest number of choices of a formula that are replaced by a kernel's, one after the other.
_STEERED = 8


class Ties:
    """The results of a formula with other roundings of its steps.

    Args:
        evaluate: function that runs the formula in double precision.
        dtype: the floating-point dtype that a kernel rounds to.
        slack: factor for the errors of all steps in every second run.
    """

    def __init__(
        self, evaluate: Callable[[], list[Tensor]], dtype: torch.dtype, slack: float
    ) -> None:
        self._evaluate = evaluate
        self._dtype = dtype
        self._slack = slack
        self._generator = torch.Generator().manual_seed(3)
        self._choices: list[_Ranges] = []
        self._results: list[list[Tensor]] = []

    def __iter__(self) -> Iterator[list[Tensor]]:
        """Yield the results of one run after the other."""
        yield from self._results
        for results in self._runs:
            self._results.append(results)
            yield results

    @cached_property
    def _runs(self) -> Iterator[list[Tensor]]:
        for number in range(_SAMPLES + _MORE):
            if number == _SAMPLES and not self._differ():
                return
            results = self._run(self._slack if number % 2 else 1.0)
            if results is not None:
                yield results

    def _differ(self) -> bool:
        """Return whether the runs so far differ in more than digits."""
        return any(
            one.shape != other.shape or not torch.equal(_kind(one), _kind(other))
            for results in self._results[1:]
            for one, other in zip(self._results[0], results, strict=True)
        )

    def choosing(self, wanted: Tensor) -> Iterator[list[Tensor]]:
        """Yield the results of the formula if it makes the choices of a kernel.

        Args:
            wanted: the kernel's result. Compared with the formula's choices, its dimensions may be
                in another order, and it may contain only the first choices.
        """
        if wanted.is_floating_point() or wanted.is_complex() or not self._choices:
            return
        for number, turned in self._fitting(wanted):
            results = self._run(1.0, number, turned)
            if results is not None:
                yield results

    def making(self, wanted: Tensor) -> Iterator[tuple[list[Tensor], Callable[[], _Choosing]]]:
        """Yield the results of the formula, and a mode in which it makes a kernel's choices.

        Args:
            wanted: choices that are known to be right, with the dimensions as in `choosing`.
        """
        exact = Ties(self._evaluate, self._dtype, self._slack)
        if exact._run(0.0) is None:
            return
        for number, turned in exact._fitting(wanted):

            def mode(number: int = number, turned: Tensor = turned) -> _Choosing:
                return exact._mode(0.0, number, turned, forced=True)

            with contextlib.suppress(Exception):
                with mode():
                    results = self._evaluate()
                yield [plain(value) for value in results], mode

    def _fitting(self, wanted: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Yield the choices that `wanted` may stand for, and its dimensions in their order."""
        dims = range(wanted.dim())
        orders = itertools.permutations(dims) if wanted.dim() <= _ORDERED else iter([tuple(dims)])
        for order in orders:
            turned = wanted.permute(order).long()
            fitting = [
                number
                for number, choice in enumerate(self._choices)
                if choice.aligned(turned) is not None
            ]
            for number in fitting[:_STEERED]:
                yield number, turned

    def _run(
        self, times: float, steered: int = -1, wanted: Tensor | None = None
    ) -> list[Tensor] | None:
        rounding = self._mode(times, steered, wanted)
        with contextlib.suppress(Exception):
            with rounding:
                results = self._evaluate()
            return [plain(value) for value in results]
        return None

    def _mode(
        self, times: float, steered: int, wanted: Tensor | None, *, forced: bool = False
    ) -> _Choosing:
        return _Choosing(
            self._dtype,
            self._generator,
            times,
            self._choices,
            steered=steered,
            wanted=wanted,
            forced=forced,
        )


def _kind(value: Tensor) -> Tensor:
    """Return the part of a result that is more than digits: integers, and finiteness of floats."""
    return value.isfinite() if value.is_floating_point() or value.is_complex() else value


@dataclass
class _Ranges:
    """The ranges in which rounding moves the candidates of a choice along a dimension.

    Attributes:
        low: the least value of each candidate in the runs so far.
        high: the largest value of each candidate.
        dim: the dimension along which the operator chooses.
        first: the chosen indices in the first run, with this dimension.
        kept: whether the operator's own indices have this dimension.
    """

    low: Tensor
    high: Tensor
    dim: int
    first: Tensor
    kept: bool

    def widen(self, given: Tensor) -> None:
        """Include the candidates' values in another run."""
        self.low = torch.minimum(self.low, given)
        self.high = torch.maximum(self.high, given)

    def aligned(self, wanted: Tensor) -> Tensor | None:
        """Return `wanted` with the dimension of the choice; `None` if the sizes do not fit."""
        if not self.kept and wanted.dim() == self.first.dim() - 1:
            wanted = wanted.unsqueeze(self.dim)
        if wanted.dim() != self.first.dim():
            return None
        count = min(wanted.shape[self.dim], self.first.shape[self.dim])
        return wanted if self.first.narrow(self.dim, 0, count).shape == wanted.shape else None

    def inside(self, wanted: Tensor) -> Tensor:
        """Return a mask of where `wanted` is the index of a candidate."""
        return (wanted >= 0) & (wanted < self.low.shape[self.dim])

    def tied(self, wanted: Tensor, index: Tensor) -> Tensor:
        """Return a mask of where rounding may make `wanted` as good as `index`."""
        count = self.low.shape[self.dim]
        one = wanted.clamp(0, max(count - 1, 0))
        low, high = (ends.gather(self.dim, one) for ends in (self.low, self.high))
        other_low, other_high = (ends.gather(self.dim, index) for ends in (self.low, self.high))
        # No candidate may be chosen twice.
        chosen = torch.zeros(self.low.shape, dtype=torch.int64)
        chosen.scatter_add_(self.dim, one, torch.ones_like(one))
        once = chosen.gather(self.dim, one) == 1
        # Between equal candidates that rounding does not move, the formula itself decides.
        moved = (low < high) | (other_low < other_high)
        return self.inside(wanted) & once & moved & (low <= other_high) & (other_low <= high)


class _Choosing(RandomRounding):
    """A dispatch mode that rounds at random, and records or replaces the choices of operators.

    If a choice differs from that of the first run, later candidates may be other ones, so that
    this run does not show how far rounding moves them. Later choices are then ignored.

    Args:
        dtype: the floating-point dtype to round to.
        generator: source of the random directions.
        times: factor for the error of each step.
        choices: the choices recorded in earlier runs; this run adds to them.
        steered: index of the choice that is replaced by `wanted` where rounding allows it; the
            other choices are made as in the first run.
        wanted: the indices to choose; `None` to replace no choice.
        forced: whether to choose them even where rounding does not allow it, and in every dtype.
            The other choices are then the operators' own.
    """

    def __init__(
        self,
        dtype: torch.dtype,
        generator: torch.Generator,
        times: float,
        choices: list[_Ranges],
        *,
        steered: int,
        wanted: Tensor | None,
        forced: bool,
    ) -> None:
        super().__init__(dtype, generator, times)
        self._choices = choices
        self._steered = steered
        self._wanted = wanted
        self._forced = forced
        self._next = 0
        self._astray = False

    def took(self, func: Any, args: Any, kwargs: Mapping[str, Any], returned: Any) -> None:
        """Record a choice, or replace it."""
        super().took(func, args, kwargs, returned)
        if func.overloadpacket not in CHOICES or self._astray:
            return
        many = returned if isinstance(returned, tuple) else (returned,)
        given, index = args[0], many[-1]
        if index.dtype != torch.int64 or not (self._forced or is_wide(given)):
            return
        if given.is_complex() or not given.numel():
            return
        named = {one.name: one.default_value for one in overload_schema(func).arguments}
        named |= dict(zip(named, args, strict=False)) | dict(kwargs)
        if named["dim"] is None or not given.dim():
            given, dim = given.flatten(), 0
        else:
            dim = named["dim"] % given.dim()
        kept = index.dim() == given.dim()
        if not kept:
            index = index.reshape(1) if given.dim() == 1 else index.unsqueeze(dim)
        values = many[0].view(index.shape) if len(many) > 1 else None
        self._see(given, dim, index, values, kept)

    def _see(
        self, given: Tensor, dim: int, index: Tensor, values: Tensor | None, kept: bool
    ) -> None:
        number = self._next
        self._next += 1
        if number == len(self._choices):
            self._choices.append(_Ranges(given.clone(), given.clone(), dim, index.clone(), kept))
        choice = self._choices[number]
        if choice.low.shape != given.shape or choice.first.shape != index.shape:
            self._astray = True
            return
        if self._wanted is None:
            choice.widen(given)
        else:
            wanted = choice.aligned(self._wanted) if number == self._steered else None
            if not self._forced:
                index.copy_(choice.first)
            if wanted is not None:
                some = index.narrow(dim, 0, wanted.shape[dim])
                free = choice.inside(wanted) if self._forced else choice.tied(wanted, some)
                some.copy_(torch.where(free, wanted, some))
            if values is not None and not (self._forced and wanted is None):
                values.copy_(given.gather(dim, index))
        self._astray = not self._forced and not torch.equal(index, choice.first)
