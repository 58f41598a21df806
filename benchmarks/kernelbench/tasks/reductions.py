"""Reductions of one dimension, and cumulative sums and products."""

import torch
from jaxtyping import Bool, Float32, Int64
from stated import task
from torch import Tensor

Rows = Float32[Tensor, "N C"]
Blocks = Float32[Tensor, "N C L"]
Reduced = Float32[Tensor, "N 1 L"]
SHAPE = (3, 40, 5)


@task(47, x=SHAPE)
def sum_reduction(x: Blocks) -> Reduced:
    return x.sum(1, keepdim=True)


@task(48, x=SHAPE)
def mean_reduction(x: Blocks) -> Float32[Tensor, "N L"]:
    return x.mean(1)


@task(49, x=SHAPE)
def max_reduction(x: Blocks) -> Float32[Tensor, "N L"]:
    return x.amax(1)


@task(51, x=SHAPE)
def argmax(x: Blocks) -> Int64[Tensor, "N L"]:
    return x.argmax(1)


@task(52, x=SHAPE)
def argmin(x: Blocks) -> Int64[Tensor, "N L"]:
    return x.argmin(1)


@task(53, x=SHAPE)
def min_reduction(x: Blocks) -> Float32[Tensor, "N L"]:
    return x.amin(1)


@task(89, x=(8, 60))
def cumsum(x: Rows) -> Rows:
    return x.cumsum(1)


@task(90, x=(8, 60))
def cumprod(x: Rows) -> Rows:
    return x.cumprod(1)


@task(91, x=(8, 60))
def cumsum_reverse(x: Rows) -> Rows:
    return x.flip(1).cumsum(1).flip(1)


@task(92, x=(8, 60))
def cumsum_exclusive(x: Rows) -> Rows:
    return torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1].cumsum(1)], 1)[:, : x.shape[1]]


@task(93, x=(8, 60), mask=lambda generator: torch.rand(8, 60, generator=generator) < 0.5)
def masked_cumsum(x: Rows, mask: Bool[Tensor, "N C"]) -> Rows:
    return (x * mask).cumsum(1)
