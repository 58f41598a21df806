"""Filling tensors: random values that respect what the declaration says of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from opsmith.operators.arguments import DTYPES
from opsmith.signature import Parameter
from opsmith.signature.binding import range_limits


class NoValue(Exception):
    """No value satisfies the declared range."""


def fill(
    parameter: Parameter,
    shape: tuple[int, ...],
    dtype: str,
    seed: int,
    dims: Mapping[str, int],
    arguments: Mapping[str, Any],
) -> Tensor:
    """A contiguous CPU tensor of random values within the parameter's ranges.

    Args:
        parameter: a tensor parameter, or a list of tensors' (its ranges hold for each).
        shape: the sizes.
        dtype: a name of `opsmith.signature.dtypes.ALL_DTYPES`.
        seed: decides the values.
        dims: the call's dimensions.
        arguments: the call's scalar arguments, and the tensors that an `Extent` names.

    Raises:
        NoValue: the range is empty here, and the tensor is not.
    """
    generator = torch.Generator().manual_seed(seed)
    target = DTYPES[dtype]
    if dtype == "bool":
        return torch.rand(shape, generator=generator) < 0.5
    if not target.is_floating_point and not target.is_complex:
        return _integers(parameter, shape, target, generator, dims, arguments)
    if target.is_complex:
        return torch.randn(shape, generator=generator, dtype=torch.complex128).to(target)
    return _floats(parameter, shape, target, generator, dims, arguments)


def _integers(
    parameter: Parameter,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    generator: torch.Generator,
    dims: Mapping[str, int],
    arguments: Mapping[str, Any],
) -> Tensor:
    info = torch.iinfo(dtype)
    lowest, highest = max(-100, info.min), min(100, info.max)
    start: Tensor | None = None
    for range_ in parameter.ranges:
        low, high = range_limits(range_, dims, arguments)
        if low is not None:
            lowest = max(int(low), info.min)
            if high is None:
                highest = min(lowest + 100, info.max)
        if high is not None:
            highest = min(int(high), info.max)
            if low is None:
                lowest = max(highest - 100, info.min)
        if range_.start is not None:
            start = arguments[range_.start].to(torch.int64)
    empty = 0 in shape
    if highest < lowest and not empty:
        raise NoValue
    if empty:
        return torch.empty(shape, dtype=dtype)
    if start is None:
        return torch.randint(lowest, highest + 1, shape, generator=generator).to(dtype)
    room = highest - start
    if bool((room < lowest).any()):
        raise NoValue
    share = torch.rand(shape, generator=generator, dtype=torch.float64)
    return (lowest + torch.floor(share * (room - lowest + 1)).to(torch.int64)).to(dtype)


def _floats(
    parameter: Parameter,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    generator: torch.Generator,
    dims: Mapping[str, int],
    arguments: Mapping[str, Any],
) -> Tensor:
    values = torch.randn(shape, generator=generator, dtype=torch.float64)
    lowest: float | None = None
    highest: float | None = None
    for range_ in parameter.ranges:
        low, high = range_limits(range_, dims, arguments)
        lowest = float(low) if low is not None else lowest
        highest = float(high) if high is not None else highest
    if lowest is not None and highest is not None:
        if highest < lowest and 0 not in shape:
            raise NoValue
        share = torch.rand(shape, generator=generator, dtype=torch.float64)
        values = lowest + (highest - lowest) * share
    elif lowest is not None:
        values = lowest + values.abs()
    elif highest is not None:
        values = highest - values.abs()
    rounded = values.to(dtype)
    if lowest is None and highest is None:
        return rounded
    # Rounding to the dtype may have stepped over a bound.
    inside = torch.ones_like(rounded, dtype=torch.bool)
    if lowest is not None:
        inside &= rounded.double() >= lowest
    if highest is not None:
        inside &= rounded.double() <= highest
    if bool(inside.all()):
        return rounded
    middle = torch.full_like(rounded, ((lowest or 0.0) + (highest or lowest or 0.0)) / 2)
    return torch.where(inside, rounded, middle)
