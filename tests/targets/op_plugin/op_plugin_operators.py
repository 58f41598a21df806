"""Operators whose declarations have everything that OpPlugin and TorchAir can say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

import opsmith


@opsmith.op("npu_said::scaled")
def scaled(x: Float[Tensor, "N C"], weight: Float[Tensor, "C"], eps: float) -> Float[Tensor, "N C"]:
    return x * weight + eps


@opsmith.op("npu_said::scaled_backward")
def scaled_backward(
    grad: Float[Tensor, "N C"], x: Float[Tensor, "N C"], weight: Float[Tensor, "C"]
) -> tuple[Float[Tensor, "N C"], Float[Tensor, "C"]]:
    return grad * weight, (grad * x).sum(0)


scaled.register_backward(scaled_backward, grads={"x": 0, "weight": 1})


@opsmith.op("npu_said::mixed")
def mixed(
    count: int,
    x: Float[Tensor, "N C"],
    bias: Float[Tensor, "C"] | None,
    size: tuple[int, int],
    halves: Sequence[int],
    *,
    mode: Literal["sum", "mean"] = "sum",
    flip: bool = False,
    eps: float = 1e-6,
    steps: Sequence[int] = (1, 2),
) -> tuple[Float[Tensor, "N*{count} {size[1]}+C"], Int64[Tensor, ""], Bool[Tensor, "C"]]:
    rows, columns = x.shape[0] * count, size[1] + x.shape[1]
    return x.new_zeros(rows, columns), torch.zeros((), dtype=torch.int64), x[0] > 0


@opsmith.op("npu_said::pooled")
def pooled(
    x: Float[Tensor, "*B H"], pad: int, stride: int
) -> tuple[
    Float[Tensor, "2 *B (H+2*{pad}-3)//{stride}+1"],
    Float[Tensor, "(0-H)%{stride} max(H-{pad},min(H,2),1)"],
]:
    one = (x.shape[-1] + 2 * pad - 3) // stride + 1
    two = max(x.shape[-1] - pad, min(x.shape[-1], 2), 1)
    return x.new_zeros(2, *x.shape[:-1], one), x.new_zeros(-x.shape[-1] % stride, two)


@opsmith.op("npu_said::joined")
def joined(
    xs: list[Float[Tensor, "N C"]], halves: Float[Tensor, "2*D+1"], mask: Int64[Tensor, "..."]
) -> tuple[Float[Tensor, "N D"], Float[Tensor, "N C"]]:
    return xs[0].new_zeros(xs[0].shape[0], halves.shape[0] // 2), xs[0] * 1


@opsmith.op("npu_said::moved", mutates_args=("state",))
def moved(state: Float[Tensor, "N"], x: Float[Tensor, "N"], rate: float) -> Float[Tensor, "N"]:
    state.add_(x, alpha=rate)
    return state * 1


@opsmith.op("npu_said::stepped", mutates_args=("params", "step"))
def stepped(
    params: list[Float[Tensor, "..."]], grads: list[Float[Tensor, "..."]], step: Float[Tensor, ""]
) -> None:
    step.add_(1)
    for param, grad in zip(params, grads, strict=True):
        param.sub_(grad)


EVERY = [scaled, mixed, pooled, joined, moved, stepped]
