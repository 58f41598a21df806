"""Declare operators whose kernels in Ascend C have faults of published ones. See README.md."""

from collections.abc import Iterator
from typing import Annotated, Any

import torch
from jaxtyping import Float32, Int16, Int32
from torch import Tensor

import opsmith
from opsmith import Index


@opsmith.op("trophies::depth_gradient")
def depth_gradient(
    grad: Float32[Tensor, "P C"],
    feat: Float32[Tensor, "I C"],
    starts: Annotated[Int32[Tensor, "I"], Index("P")],
    lengths: Int32[Tensor, "I"],
) -> Float32[Tensor, "P"]:
    """Give the product of each point's gradient with the features of its interval."""
    intervals = torch.repeat_interleave(torch.arange(len(feat)), lengths.long())
    return (grad * feat[intervals]).sum(1)


depth_gradient.register_kernel("npu", source="depth_gradient.cpp", language="ascendc")


@depth_gradient.register_cases(only=True)
def _intervals(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = torch.Generator().manual_seed(seed)
    for channels in (8, 5, 32):
        lengths = torch.randint(1, 4, (11,), generator=random, dtype=torch.int32)
        yield {
            "grad": torch.rand(int(lengths.sum()), channels, generator=random),
            "feat": torch.rand(11, channels, generator=random),
            "starts": (lengths.cumsum(0) - lengths).int(),
            "lengths": lengths,
        }


@opsmith.op("trophies::covered_intervals")
def covered_intervals(
    begins: Float32[Tensor, "N"], ends: Float32[Tensor, "N"]
) -> Int16[Tensor, "N N"]:
    """Give 1 where a later interval touches an earlier one; N is a multiple of 16."""
    touches = (begins < ends[:, None]) & (begins[:, None] < ends)
    return touches.triu(1).short()


covered_intervals.register_kernel("npu", source="covered_intervals.cpp", language="ascendc")


@covered_intervals.register_cases(only=True)
def _of_whole_tiles(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = torch.Generator().manual_seed(seed)
    for count in (16, 128, 144):
        begins = torch.rand(count, generator=random)
        yield {"begins": begins, "ends": begins + 0.1}


@opsmith.op("trophies::added_tiles")
def added_tiles(x: Float32[Tensor, "N"], y: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    """Give the sum where it is positive, and else 0."""
    return (x + y).relu()


added_tiles.register_kernel("npu", source="added_tiles.cpp", language="ascendc")


@added_tiles.register_cases(only=True)
def _of_a_few_tiles(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = torch.Generator().manual_seed(seed)
    for count in (100, 4096, 5000):
        x, y = torch.randn(2, count, generator=random)
        yield {"x": x, "y": y}
