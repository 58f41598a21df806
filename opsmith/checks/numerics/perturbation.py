"""Change arguments of an evaluation a little: their precision, last bits or values."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.numerics.rounding import with_precision
from opsmith.checks.numerics.sensitivity import magnitude, map_inexact
from opsmith.operators.core.arguments import every_tensor_in, map_named_tensors, map_tensors
from opsmith.signature import Signature

HALVED = {torch.float64: torch.float32, torch.complex128: torch.complex64}
"""The dtype of half the width, by dtype."""
#: A little more than the rounding of a number, in single precision and in double.
_NUDGE, _FINE_NUDGE = 1e-7, 1e-15
#: Number of times that arguments are nudged, half of them back.
_NEARBY = 8


def keep_indices(
    signature: Signature, own: Mapping[str, Any], moved: Mapping[str, Any]
) -> dict[str, Any]:
    """Return moved arguments with the columns that hold indices as they are in `own`.

    However little an index moves, it becomes another index, or none.
    """
    before = dict(every_tensor_in(own))

    def keep(name: str, tensor: Tensor) -> Tensor:
        parameter = signature.by_name.get(name.partition("[")[0])
        if parameter is None or not parameter.columns:
            return tensor
        places = [column.place for column in parameter.columns]
        held = torch.zeros(tensor.shape[-1], dtype=torch.bool, device=tensor.device)
        held[places] = True
        return torch.where(held, before[name].to(tensor), tensor)

    return map_named_tensors(moved, keep)


def coarse(value: Any) -> Any:
    """Round float64 tensors in `value` to the precision of float32.

    Double precision can show the rounding of float32, but not its own.
    """

    def rounded(tensor: Tensor) -> Tensor:
        if tensor.dtype not in HALVED:
            return tensor
        real = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
        real = with_precision(real, torch.float32)
        return torch.view_as_complex(real) if tensor.is_complex() else real

    return map_tensors(value, rounded)


def narrowed(value: Any) -> Any:
    """Convert float64 tensors in `value` to float32, whose rounding double precision can show."""
    return map_tensors(value, lambda tensor: tensor.to(HALVED.get(tensor.dtype, tensor.dtype)))


def jitter(value: Any, generator: torch.Generator) -> Any:
    """Change the last bits of all numbers in `value`."""

    def changed(tensor: Tensor) -> Tensor:
        bits = torch.randint(-2, 3, tensor.shape, generator=generator)
        eps = torch.finfo(HALVED.get(tensor.dtype, tensor.dtype)).eps
        return tensor * (1 + bits * eps).to(tensor.dtype)

    return map_inexact(value, changed)


def nudged(wide: Mapping[str, Any], *, fine: bool) -> Iterator[dict[str, Any]]:
    """Yield arguments near the given ones, on both sides of a kink.

    Args:
        wide: the arguments in double precision.
        fine: whether nothing rounds them to less.
    """
    generator, step = torch.Generator(), _FINE_NUDGE if fine else _NUDGE
    for sample in range(_NEARBY):
        generator.manual_seed(sample // 2)  # there, and back to the other side
        step = -step
        nudge = functools.partial(_nudge, generator=generator, step=step)
        yield {name: map_inexact(value, nudge) for name, value in wide.items()}


def _nudge(value: Tensor, generator: torch.Generator, step: float) -> Tensor:
    """Move all numbers of a tensor a little, zeros too."""
    uniform = torch.rand(value.shape, generator=generator, dtype=torch.float64) * 2 - 1
    # By different amounts, so that two equal numbers become different ones.
    amounts = uniform + 0.5 * torch.where(uniform < 0, -1.0, 1.0)
    return value + step * (1 + magnitude(value)) * amounts
