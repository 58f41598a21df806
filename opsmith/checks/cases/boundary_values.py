"""Test values other than normally distributed ones: extreme, special, or specially ordered."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opsmith.operators.core.arguments import is_float8
from opsmith.signature import Parameter
from opsmith.signature.constraints import ValueRange

#: Relations among the values of a tensor. The values stay inside any declared range.
ARRANGEMENTS = ("equal", "ties", "sorted", "reversed", "ends of the range")
#: Kinds of values for floating-point tensors without declared constraints on their values.
FLOATS = ("large", "huge", "tiny", "denormal", "zeros", "signed zeros", "NaN", "infinity")
#: Log-uniform magnitudes: every element has its own, or the whole tensor has a single one.
MAGNITUDES = "all magnitudes"
ONE_MAGNITUDE = "one magnitude"
#: Zeros, and few values that are far from zero along the longest dimension, spread over all of it:
#: a sum of them has a small tolerance, however long it is.
NEEDLES = "few among zeros"
#: Large values that are all equal: the sum of many exceeds the range of half precision.
LARGE_EQUAL = "large and equal"
#: Multiples of a half: rounding to an integer has to decide many of them.
HALVES = "halves"
#: One value along the longest dimension; the tensor's first value is a power of two. A sum along
#: that dimension in half precision stops growing, or is rounded in the same direction each step.
RUNS = "runs of one value"
#: Along the longest dimension a few equal numbers, and many so small that adding one of them, or
#: its square, to a large one changes nothing in half precision. The large numbers stand so that
#: each of up to eight partial sums begins with one, whether a kernel sums blocks or every eighth
#: element. (Equal numbers lose digits only in long sums, where the tolerance hides the loss.)
SMALL_BESIDE_LARGE = ("small beside large", "small squares beside large")
_PARTIAL_SUMS = 8
#: Number of values along a line of `NEEDLES`: every tenth of a line contains some.
_NEEDLES = 24
#: The magnitudes lie between the inverse of this number and this number.
_REACH = 1e18
#: Kinds whose values may be too large for a dtype.
_CLAMPED = ("large", "huge", MAGNITUDES, ONE_MAGNITUDE)
#: Kinds with values that a range has which contains zero.
_NEAR_ZERO = ("zeros", "tiny", "denormal", HALVES, MAGNITUDES, ONE_MAGNITUDE)
#: Integers are drawn as int64.
_LARGEST = torch.iinfo(torch.int64).max


def takes(parameter: Parameter, dtype: torch.dtype, kind: str) -> bool:
    """Return whether values of some kind satisfy the declaration of a tensor.

    Args:
        kind: one of `ARRANGEMENTS` or `FLOATS`, or another constant of this module.
    """
    constraints = parameter.without_columns().constraints
    if kind in parameter.unspecified:
        return False
    if dtype.is_complex and kind in ("sorted", "reversed", "ends of the range", RUNS):
        return False  # complex numbers have no order, and none in half precision is summed
    if dtype is torch.bool or is_float8(dtype):
        return kind == "equal" and not constraints
    if kind == "ends of the range" and dtype.is_floating_point:
        return bool(constraints) and all(_closed(one) for one in constraints)
    integers = not dtype.is_floating_point and not dtype.is_complex
    if kind in (*ARRANGEMENTS, RUNS) or (kind == MAGNITUDES and integers):
        return all(isinstance(one, ValueRange) and one.start is None for one in constraints)
    if kind in _NEAR_ZERO and not integers and all(_holds_zero(one) for one in constraints):
        return True
    if kind in SMALL_BESIDE_LARGE and dtype not in (torch.float16, torch.bfloat16):
        return False
    return not integers and not constraints


def _closed(constraint: object) -> bool:
    return (
        isinstance(constraint, ValueRange)
        and constraint.start is None
        and constraint.low is not None
        and constraint.high is not None
        and not constraint.above
        and not constraint.exclusive
    )


def _holds_zero(one: object) -> bool:
    """Return whether a range whose ends are numbers contains zero."""
    if not isinstance(one, ValueRange) or one.start or any(end.reason for end in one.bounds):
        return False
    low, high = (0 if end is None else end.number({}, {}) for end in (one.low, one.high))
    return low <= 0 <= high and not (one.above and low == 0) and not (one.exclusive and high == 0)


def arranged(
    drawn: Tensor, kind: str, ends: tuple[float | int, float | int], generator: torch.Generator
) -> Tensor:
    """Return a tensor with the values of `drawn` in another arrangement.

    Args:
        drawn: any values.
        kind: one of `ARRANGEMENTS`, `RUNS`, or for integers `MAGNITUDES`.
        ends: the least and the largest allowed value.
        generator: source of the random numbers.
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
    chosen = torch.rand(drawn.shape, generator=generator, dtype=torch.float64)
    if kind == MAGNITUDES:
        return _integer_magnitudes(drawn, ends, chosen, generator)
    if kind == "ties":
        few = drawn.flatten()[: min(3, drawn.numel())]
        return few[(chosen * len(few)).long()]
    if kind == "ends of the range":
        low, high = (torch.full_like(drawn, end) for end in ends)
        other = torch.where(chosen < 0.9, _between(drawn, ends, generator), drawn)
        if ends[0] < 0 < ends[1] and not drawn.is_floating_point():
            other = torch.where(chosen < 0.8, torch.zeros_like(drawn), other)
        return torch.where(chosen < 0.35, low, torch.where(chosen < 0.7, high, other))
    return drawn


def _integer_magnitudes(
    drawn: Tensor, ends: tuple[float | int, float | int], share: Tensor, generator: torch.Generator
) -> Tensor:
    """Draw integers whose logarithms are uniform, of both signs where the range has both."""
    low, high = int(ends[0]), min(int(ends[1]), _LARGEST)
    least, most = max(low, 0), max(high, 0)
    upper = math.log(max(most, least, 1))
    values = torch.exp(math.log(max(least, 1)) + share * (upper - math.log(max(least, 1))))
    found = values.clamp(max=2.0**62).to(torch.int64)
    if low < 0:
        negative = torch.rand(drawn.shape, generator=generator) < 0.5
        found = torch.where(negative, (-found).clamp(min=max(low, -_LARGEST)), found)
    return found.clamp(max=high).to(drawn.dtype)


def _between(
    drawn: Tensor, ends: tuple[float | int, float | int], generator: torch.Generator
) -> Tensor:
    """Draw integers from the whole range.

    The two ends of the range would not suffice: they may cancel in a sum, or have only zeros in
    their lower 32 bits.
    """
    if drawn.is_floating_point():
        return drawn
    low, high = int(ends[0]), min(int(ends[1]), _LARGEST)
    if low >= high:
        return drawn
    return torch.randint(low, high, drawn.shape, generator=generator).to(drawn.dtype)


def extreme(normal: Tensor, kind: str, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return floating-point values of some kind.

    Args:
        normal: normally distributed values in double precision.
        kind: one of `FLOATS` or `SMALL_BESIDE_LARGE`, `LARGE_EQUAL`, `MAGNITUDES`, `ONE_MAGNITUDE`
            or `NEEDLES`.
        dtype: dtype that the values are converted to; decides which values are large or tiny. Of a
            complex one, real and imaginary parts are in the last dimension of `normal`.
        generator: source of the random numbers.
    """
    info = torch.finfo(dtype)
    # The oracle is float64 too. For float64 inputs, it is right only for values below the square
    # root of the largest number.
    wide = dtype.to_real() is torch.float64
    chosen = torch.rand(normal.shape, generator=generator)
    if kind == "large":  # exp overflows in single precision, and not in double precision
        values = normal * 100
    elif kind == LARGE_EQUAL:
        values = (
            torch.full_like(normal, 100 * normal.flatten()[0].item()) if normal.numel() else normal
        )
    elif kind in SMALL_BESIDE_LARGE:
        values = _small_beside_large(normal, info.eps, kind == SMALL_BESIDE_LARGE[1])
    elif kind == "huge":  # squares overflow
        values = normal * (1e100 if wide else info.max**0.5 * 4)
    elif kind == "tiny":  # squares underflow
        values = normal * (1e-100 if wide else info.smallest_normal**0.5 / 4)
    elif kind == "denormal":
        values = normal * info.smallest_normal / 4
    elif kind in (MAGNITUDES, ONE_MAGNITUDE):
        values = _magnitudes(normal, info, None if kind == MAGNITUDES else (), generator)
    elif kind == NEEDLES:
        values = torch.where(_needles(normal.shape, generator), 8 * normal.sign() + normal, 0.0)
    elif kind == HALVES:
        # Take a lone number for a scale: a power of two leaves the others such multiples.
        values = (4 * normal).round() / 2 if normal.dim() else torch.exp2(normal.abs().ceil())
    elif kind == "zeros":
        values = torch.zeros_like(normal)
    elif kind == "signed zeros":
        zeros = torch.where(chosen < 0.4, -0.0, 0.0).to(normal.dtype)
        # One part alone that is zero would lie on a branch cut, where its sign chooses the side.
        among = chosen.amax(-1, keepdim=True) if dtype.is_complex else chosen
        if normal.numel() and not dtype.is_complex:  # zeros are the largest of them, or the least
            normal = normal.abs().copysign(normal.view(-1)[0])
        values = torch.where(among < 0.8, zeros, normal)
    else:
        special = float("nan") if kind == "NaN" else float("inf")
        values = torch.where(chosen < 0.1, special * torch.sign(normal), normal)
        if values.numel():
            place = int(torch.randint(values.numel(), (), generator=generator))
            values.view(-1)[place] = special
    return values.clamp(-info.max, info.max) if kind in _CLAMPED else values


def _small_beside_large(normal: Tensor, eps: float, squared: bool) -> Tensor:
    if not normal.dim() or not normal.numel():
        return normal
    longest = max(range(normal.dim()), key=lambda dim: normal.shape[dim])
    length = normal.shape[longest]
    # Less than half of the distance of a number to the next, also after conversion.
    share = 0.375 * eps
    along = torch.full((length,), share**0.5 if squared else share, dtype=normal.dtype)
    along[:_PARTIAL_SUMS] = 1
    along[:: max(length // _PARTIAL_SUMS, 1)] = 1
    large = torch.exp2(normal.flatten()[0].abs().log2().round())
    sizes = [length if dim == longest else 1 for dim in range(normal.dim())]
    return (large * along).view(sizes).expand(normal.shape).contiguous()


def _magnitudes(
    normal: Tensor, info: torch.finfo, size: tuple[int, ...] | None, generator: torch.Generator
) -> Tensor:
    """Return values whose logarithms are uniform over what a dtype can hold, up to `_REACH`."""
    share = torch.rand(
        normal.shape if size is None else size, generator=generator, dtype=torch.float64
    )
    low = math.log(max(1 / _REACH, info.smallest_normal))
    high = math.log(min(_REACH, info.max / 4))
    scale = torch.exp(low + share * (high - low))
    digits = normal.sign() * (1 + torch.frac(normal.abs()))
    return (digits if size is None else normal) * scale


def _needles(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Mark a few places along the longest dimension: one in each of some equal parts of it."""
    if not shape:
        return torch.ones(shape, dtype=torch.bool)
    longest = max(range(len(shape)), key=lambda dim: shape[dim])
    length = shape[longest]
    rows = [size for dim, size in enumerate(shape) if dim != longest]
    parts = min(_NEEDLES, length)
    first = torch.arange(parts, dtype=torch.float64) * length / max(parts, 1)
    within = torch.rand((*rows, parts), generator=generator, dtype=torch.float64)
    places = (first + within * length / max(parts, 1)).long().clamp(max=max(length - 1, 0))
    marked = torch.zeros((*rows, length), dtype=torch.bool).scatter_(-1, places, True)
    return marked.movedim(-1, longest)
