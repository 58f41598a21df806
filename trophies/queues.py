"""Declare an operator whose kernel in Ascend C has faults of a published one. See README.md."""

from collections.abc import Iterator
from typing import Annotated, Any

import torch
from jaxtyping import Float32, Int32
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
