"""Four races of published CUDA kernels, in kernels of opsmith's own words. See README.md."""

from collections.abc import Iterator
from typing import Annotated, Any

import torch
from jaxtyping import Float32, Int32
from torch import Tensor

import opsmith
from opsmith import Between


@opsmith.op("trophies::chosen_points")
def chosen_points(
    x: Float32[Tensor, "N"], rounds: Annotated[int, Between(1, 8)]
) -> Int32[Tensor, "{rounds}"]:
    """Choose in each round the point that is farthest from all that were chosen; 0 is the first."""
    chosen = [0]
    nearest = torch.full_like(x, float("inf"))
    while len(chosen) < rounds and len(x) > 0:
        nearest = torch.minimum(nearest, (x - x[chosen[-1]]).abs())
        chosen.append(int(nearest.argmax()))
    chosen += [0] * (rounds - len(chosen))
    return torch.tensor(chosen, dtype=torch.int32)


@opsmith.op("trophies::row_softmax")
def row_softmax(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
    """Give the softmax of each row."""
    return x.softmax(1)


@opsmith.op("trophies::kept_intervals")
def kept_intervals(ends: Float32[Tensor, "N 2"]) -> Int32[Tensor, "N"]:
    """Give 1 for each interval that meets no earlier interval with a 1."""
    kept: list[int] = []
    for i, (begin, end) in enumerate(ends.tolist()):
        meets = [begin < ends[j, 1] and ends[j, 0] < end for j in range(i) if kept[j]]
        kept.append(0 if any(meets) else 1)
    return torch.tensor(kept, dtype=torch.int32)


@opsmith.op("trophies::reversed_rows")
def reversed_rows(x: Float32[Tensor, "N 128"]) -> Float32[Tensor, "N 128"]:
    """Give each row in reverse."""
    return x.flip(1)


chosen_points.register_kernel("cuda", source="chosen_points.cu")
row_softmax.register_kernel("cuda", source="row_softmax.cu")
kept_intervals.register_kernel("cuda", source="kept_intervals.cu")
reversed_rows.register_kernel("cuda", source="reversed_rows.cu")


@chosen_points.register_cases
def _points(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    yield {"x": torch.rand(100, generator=torch.Generator().manual_seed(seed)), "rounds": 5}


@row_softmax.register_cases
def _rows(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    yield {"x": torch.randn(2, 300, generator=torch.Generator().manual_seed(seed))}


@kept_intervals.register_cases
def _intervals(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    begin = 20 * torch.rand(40, generator=torch.Generator().manual_seed(seed))
    yield {"ends": torch.stack([begin, begin + 1], 1)}


@reversed_rows.register_cases
def _reversed(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    yield {"x": torch.rand(3, 128, generator=torch.Generator().manual_seed(seed))}
