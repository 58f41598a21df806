"""Values beside normally distributed ones: extreme, special, or in an order of their own."""

from __future__ import annotations

import torch
from torch import Tensor

from opsmith.operators.core.arguments import is_float8
from opsmith.signature import Parameter
from opsmith.signature.constraints import ValueRange

#: How the values of a tensor are related to each other: any declared range keeps.
ARRANGEMENTS = ("equal", "ties", "sorted", "reversed", "ends of the range")
#: What only tensors of floating numbers hold, where the declaration says nothing of their values.
FLOATS = ("large", "huge", "tiny", "denormal", "zeros", "signed zeros", "NaN", "infinity")
#: The same of one value, so that many add up to more than half precision has.
LARGE_EQUAL = "large and equal"
#: One value along the longest dimension, the first of all a power of two: such a sum in half
#: precision stops growing, or is rounded one way at each step.
RUNS = "runs of one value"
#: What is drawn goes through 64 bits.
_LARGEST = torch.iinfo(torch.int64).max


def takes(parameter: Parameter, dtype: torch.dtype, kind: str) -> bool:
    """Whether values of some kind fit what is declared of a tensor.

    Args:
        parameter: what the tensor is for.
        dtype: the tensor's.
        kind: one of `ARRANGEMENTS` or `FLOATS`, `LARGE_EQUAL` or `RUNS`.
    """
    constraints = parameter.constraints
    if dtype is torch.bool or dtype.is_complex or is_float8(dtype):
        return kind == "equal" and not constraints
    if kind == "ends of the range" and dtype.is_floating_point:
        return bool(constraints) and all(_closed(one) for one in constraints)
    if kind in (*ARRANGEMENTS, RUNS):
        return all(isinstance(one, ValueRange) and one.start is None for one in constraints)
    return dtype.is_floating_point and not constraints


def _closed(constraint: object) -> bool:
    return (
        isinstance(constraint, ValueRange)
        and constraint.start is None
        and constraint.low is not None
        and constraint.high is not None
        and not constraint.above
        and not constraint.exclusive
    )


def arranged(
    drawn: Tensor, kind: str, ends: tuple[float | int, float | int], generator: torch.Generator
) -> Tensor:
    """`drawn` with its own values in another arrangement.

    Args:
        drawn: any values.
        kind: one of `ARRANGEMENTS`, or `RUNS`.
        ends: the least and the largest value that there may be.
        generator: decides what is random.
    """
    if not drawn.numel():
        return drawn
    if kind == "equal":
        return torch.full_like(drawn, drawn.flatten()[0].item())
    if kind == "sorted" and drawn.dim():
        return drawn.sort(-1).values
    if kind == "reversed" and drawn.dim():
        return drawn.sort(-1, descending=True).values
    if kind == RUNS and drawn.dim():
        longest = max(range(drawn.dim()), key=lambda dim: drawn.shape[dim])
        return drawn.narrow(longest, 0, 1).expand(drawn.shape).contiguous()
    chosen = torch.rand(drawn.shape, generator=generator)
    if kind == "ties":
        few = drawn.flatten()[: min(3, drawn.numel())]
        return few[(chosen * len(few)).long()]
    if kind == "ends of the range":
        low, high = (torch.full_like(drawn, end) for end in ends)
        other = torch.where(chosen < 0.9, _between(drawn, ends, generator), drawn)
        return torch.where(chosen < 0.35, low, torch.where(chosen < 0.7, high, other))
    return drawn


def _between(
    drawn: Tensor, ends: tuple[float | int, float | int], generator: torch.Generator
) -> Tensor:
    """Integers from the whole range: its ends may cancel, or have nothing but zeros in 32 bits."""
    if drawn.is_floating_point():
        return drawn
    low, high = int(ends[0]), min(int(ends[1]), _LARGEST)
    if low >= high:
        return drawn
    return torch.randint(low, high, drawn.shape, generator=generator).to(drawn.dtype)


def extreme(normal: Tensor, kind: str, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Floating values of some kind.

    Args:
        normal: normally distributed, in double precision.
        kind: one of `FLOATS`, or `LARGE_EQUAL`.
        dtype: what the values become; decides what is large and what is tiny.
        generator: decides what is random.
    """
    info = torch.finfo(dtype)
    # Of float64, double precision can say the truth up to the square root of its largest number.
    wide = dtype is torch.float64
    chosen = torch.rand(normal.shape, generator=generator)
    if kind == "large":  # exp overflows in single precision, and not in double precision
        values = normal * 100
    elif kind == LARGE_EQUAL:
        values = (
            torch.full_like(normal, 100 * normal.flatten()[0].item()) if normal.numel() else normal
        )
    elif kind == "huge":  # squares overflow
        values = normal * (1e100 if wide else info.max**0.5 * 4)
    elif kind == "tiny":  # squares underflow
        values = normal * (1e-100 if wide else info.smallest_normal**0.5 / 4)
    elif kind == "denormal":
        values = normal * info.smallest_normal / 4
    elif kind == "zeros":
        values = torch.zeros_like(normal)
    elif kind == "signed zeros":
        zeros = torch.where(chosen < 0.4, -0.0, 0.0).to(normal.dtype)
        values = torch.where(chosen < 0.8, zeros, normal)
    else:
        special = float("nan") if kind == "NaN" else float("inf")
        values = torch.where(chosen < 0.1, special * torch.sign(normal), normal)
        if values.numel():
            place = int(torch.randint(values.numel(), (), generator=generator))
            values.view(-1)[place] = special
    return values.clamp(-info.max, info.max) if kind in ("large", "huge") else values
