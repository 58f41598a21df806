"""Random values for tensors that satisfy the declared constraints."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.cases import integer_runs
from opsmith.checks.cases.boundary_values import (
    FLOATS,
    HALVES,
    LARGE_EQUAL,
    MAGNITUDES,
    NEEDLES,
    ONE_MAGNITUDE,
    RUNS,
    SMALL_BESIDE_LARGE,
    arranged,
    extreme,
    takes,
)
from opsmith.checks.cases.integer_runs import NoValue
from opsmith.operators.core.arguments import DTYPES
from opsmith.signature import Order, Parameter, PartStarts, Sum
from opsmith.signature.constraints import range_limits

#: Kinds of floating-point values, beside `FLOATS`, that are made from normal ones.
_SPREAD = (MAGNITUDES, ONE_MAGNITUDE, NEEDLES, HALVES)


def fill(
    parameter: Parameter,
    shape: tuple[int, ...],
    dtype: str,
    seed: int,
    dims: Mapping[str, int],
    arguments: Mapping[str, Any],
    kind: str = "",
) -> Tensor:
    """Create a contiguous CPU tensor of random values that satisfy the parameter's constraints.

    Columns that hold indices are drawn on their own, as integers.

    The values may violate a combination of several constraints: check them afterwards.

    Args:
        dtype: a name of `opsmith.signature.dtypes.ALL_DTYPES`.
        dims: the call's dimensions.
        arguments: the call's scalar arguments, and the tensors that a constraint reads.
        kind: the kind of values (see `opsmith.checks.cases.boundary_values`), used where the
            declaration allows it; empty for normally distributed values.
    """
    target = DTYPES[dtype]
    floating = target.is_floating_point or target.is_complex
    if parameter.columns:
        rest = parameter.without_columns()
        values = fill(rest, shape, dtype, seed, dims, arguments, kind)
        exact = int(2 / torch.finfo(target).eps) if floating else torch.iinfo(target).max
        for column in parameter.columns:
            one = replace(parameter, constraints=(column.range,))
            drawn = fill(one, shape[:-1], "int64", seed + 1 + column.place, dims, arguments, kind)
            values[..., column.place] = drawn.clamp(max=exact)
        return values
    generator = torch.Generator().manual_seed(seed)
    asked = _Asked(parameter, shape, target, generator, dims, arguments)
    if not kind or not takes(parameter, target, kind):
        return asked.drawn()
    if kind in (*FLOATS, *SMALL_BESIDE_LARGE, LARGE_EQUAL, *_SPREAD) and floating:
        parts = (*shape, 2) if target.is_complex else shape
        normal = torch.randn(parts, generator=generator, dtype=torch.float64)
        values = asked.kept(extreme(normal, kind, target, generator).to(target.to_real()))
        return torch.view_as_complex(values) if target.is_complex else values
    drawn = asked.drawn()
    if kind == RUNS and target.is_floating_point and not parameter.constraints:
        drawn = drawn.abs()
        first = drawn.view(-1)[:1]
        first.copy_(torch.exp2(first.double().log2().round()))
    return arranged(drawn, kind, asked.ends(), generator)


@dataclass(frozen=True)
class _Asked:
    """A tensor that is asked for, with what its values depend on: see `fill`."""

    parameter: Parameter
    shape: tuple[int, ...]
    dtype: torch.dtype
    generator: torch.Generator
    dims: Mapping[str, int]
    arguments: Mapping[str, Any]

    def ends(self) -> tuple[Any, Any]:
        """Return the least and the largest value that the tensor may hold."""
        dtype = self.dtype
        if dtype is torch.bool or dtype.is_complex:
            return 0, 1
        info = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
        ends = [info.min, info.max]
        for range_ in self.parameter.ranges:
            low, high = range_limits(range_, self.dims, self.arguments)
            ends[0] = ends[0] if low is None else max(ends[0], low + range_.above)
            ends[1] = ends[1] if high is None else min(ends[1], high)
        if dtype.is_floating_point:
            return _within(ends[0], dtype, math.inf), _within(ends[1], dtype, -math.inf)
        return ends[0], ends[1]

    def kept(self, values: Tensor) -> Tensor:
        """Return values with others drawn in place of those outside of the range."""
        ranges = self.parameter.ranges
        if not ranges:
            return values
        low, high = self.parameter.limits(self.dims, self.arguments)
        low, high = -math.inf if low is None else low, math.inf if high is None else high
        outside = (values < low) | (values > high)
        if any(range_.above or range_.exclusive for range_ in ranges):
            outside |= (values == low) | (values == high)
        return torch.where(outside, self.drawn(), values)

    def drawn(self) -> Tensor:
        """Draw the values."""
        shape, generator = self.shape, self.generator
        if self.dtype is torch.bool:
            return torch.rand(shape, generator=generator) < 0.5
        if self.dtype.is_complex:
            return torch.randn(shape, generator=generator, dtype=torch.complex128).to(self.dtype)
        return self._floats() if self.dtype.is_floating_point else self._integers()

    def _integers(self) -> Tensor:
        info = torch.iinfo(self.dtype)
        if self.parameter.drawn:  # all 64 bits of a seed and an offset count
            return torch.randint(info.min, info.max, self.shape, generator=self.generator)
        lowest, highest = max(-100, info.min), min(100, info.max)
        start: Tensor | None = None
        for range_ in self.parameter.ranges:
            low, high = range_limits(range_, self.dims, self.arguments)
            if low is not None:
                lowest = max(int(low) + range_.above, info.min)
                if high is None:
                    highest = min(lowest + 100, info.max)
            if high is not None:
                highest = min(int(high), info.max)
                if low is None:
                    lowest = max(highest - 100, info.min)
            if range_.start is not None:
                start = self.arguments[range_.start].to(torch.int64)
        rng = random.Random(int(torch.randint(2**62, (), generator=self.generator)))
        for constraint in self.parameter.constraints:
            match constraint:
                case Order():
                    return self._sorted(constraint, rng, lowest, highest)
                case Sum():
                    bounded = any(range_.high is not None for range_ in self.parameter.ranges)
                    most = highest if bounded else info.max
                    total = constraint.total.number(self.dims, self.arguments)
                    return self._parts(constraint, rng, total, max(lowest, 0), most)
                case PartStarts(of, shapes):
                    sizes: Tensor = self.arguments[of].to(torch.int64)
                    sizes = sizes.prod(-1) if shapes else sizes
                    return (sizes.cumsum(-1) - sizes).to(self.dtype)
        empty = 0 in self.shape
        if highest < lowest and not empty:
            raise NoValue
        if empty:
            return torch.empty(self.shape, dtype=self.dtype)
        if start is None:
            return torch.randint(lowest, highest + 1, self.shape, generator=self.generator).to(
                self.dtype
            )
        room = highest - start
        if bool((room < lowest).any()):
            raise NoValue
        share = torch.rand(self.shape, generator=self.generator, dtype=torch.float64)
        return (lowest + torch.floor(share * (room - lowest + 1)).to(torch.int64)).to(self.dtype)

    def _sorted(self, order: Order, rng: random.Random, lowest: int, highest: int) -> Tensor:
        first, last = (
            None if end is None else int(end.number(self.dims, self.arguments))
            for end in (order.first, order.last)
        )
        if first is not None:
            highest = max(highest, first + 100)
        if last is not None:
            lowest = min(lowest, last - 100) if first is None else first
            highest = last
        count, limits = self.shape[-1], (lowest, highest)
        return self._stacked(
            lambda: integer_runs.increasing(
                rng, count, *limits, first=first, last=last, strict=order.strict
            ),
            self.shape[:-1],
        )

    def _parts(
        self, constraint: Sum, rng: random.Random, total: int, lowest: int, highest: int
    ) -> Tensor:
        if constraint.shapes:
            *leading, count, rank = self.shape
            return self._stacked(
                lambda: integer_runs.shapes(rng, count, rank, total, lowest, highest), leading
            )
        *leading, count = self.shape
        return self._stacked(
            lambda: integer_runs.parts(rng, count, total, lowest, highest), leading
        )

    def _stacked(self, line: Callable[[], list[Any]], leading: Sequence[int]) -> Tensor:
        """Stack generated rows into a tensor, one row for each index of the leading dimensions."""
        rows = [line() for _ in range(math.prod(leading))]
        return torch.tensor(rows, dtype=torch.int64).reshape(self.shape).to(self.dtype)

    def _floats(self) -> Tensor:
        values = torch.randn(self.shape, generator=self.generator, dtype=torch.float64)
        lowest, highest = (
            None if end is None else float(end)
            for end in self.parameter.limits(self.dims, self.arguments)
        )
        above = any(range_.above for range_ in self.parameter.ranges)
        if lowest is not None and highest is not None:
            if highest < lowest and 0 not in self.shape:
                raise NoValue
            share = torch.rand(self.shape, generator=self.generator, dtype=torch.float64)
            values = lowest + (highest - lowest) * share
        elif lowest is not None:
            values = lowest + values.abs()
        elif highest is not None:
            values = highest - values.abs()
        rounded = values.to(self.dtype)
        if lowest is not None or highest is not None:
            # Rounding to the dtype may have left the range.
            inside = torch.ones_like(rounded, dtype=torch.bool)
            if lowest is not None:
                inside &= rounded.double() > lowest if above else rounded.double() >= lowest
            if highest is not None:
                inside &= rounded.double() <= highest
            low = highest or 0.0 if lowest is None else lowest
            high = low + 2.0 * above if highest is None else highest
            middle = torch.full_like(values, (low + high) / 2)
            rounded = torch.where(inside, rounded.double(), middle).to(self.dtype)
        for constraint in self.parameter.constraints:
            if isinstance(constraint, Order):
                rounded = _sorted_floats(constraint, rounded, self.dims, self.arguments)
        return rounded


def _within(end: float, dtype: torch.dtype, inwards: float) -> float:
    """Round the end of a range to a dtype, inwards if rounding would leave the range."""
    rounded = torch.tensor(end, dtype=torch.float64).to(dtype)
    over = rounded.double() < end if inwards > 0 else rounded.double() > end
    return (rounded.nextafter(torch.tensor(inwards, dtype=dtype)) if over else rounded).item()


def _sorted_floats(
    order: Order, values: Tensor, dims: Mapping[str, int], arguments: Mapping[str, Any]
) -> Tensor:
    values = values.sort(-1).values
    if 0 in values.shape:
        return values
    for end, position in ((order.first, 0), (order.last, -1)):
        if end is not None:
            number = float(end.number(dims, arguments))
            values = values.clamp(min=number) if position == 0 else values.clamp(max=number)
            values[..., position] = number
    return values
