"""The operators that are fuzzed: between them every kind of argument, kernels in C++ and Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

import opsmith
from opsmith import Between, Index


@opsmith.op("fuzz::scale", autograd="reference")
def scale(x: Float[Tensor, "*n"], k: float = 2.0, flip: bool = False) -> Float[Tensor, "*n"]:
    """Any shape, a float and a flag; has a gradient."""
    return x * (-k if flip else k)


@opsmith.op("fuzz::take", autograd="reference")
def take(
    x: Float[Tensor, "N C"], rows: Annotated[Int64[Tensor, "P"], Index("N")]
) -> Float[Tensor, "P C"]:
    """Indices into another argument."""
    return x[rows]


@opsmith.op("fuzz::blend", autograd="reference")
def blend(
    x: Float[Tensor, "N M"], bias: Float[Tensor, "M"] | None = None, weight: int | None = None
) -> Float[Tensor, "N M"]:
    """Optional arguments."""
    out = x if weight is None else x * weight
    return out.clone() if bias is None else out + bias


@opsmith.op("fuzz::total")
def total(
    xs: list[Float[Tensor, "N M"]], mode: Literal["sum", "mean"] = "sum"
) -> Float[Tensor, "N M"]:
    """A list of tensors and a text."""
    out = torch.stack(xs).sum(0)
    return out / len(xs) if mode == "mean" else out


@opsmith.op("fuzz::add_to", mutates_args=("total",))
def add_to(
    x: Float[Tensor, "N M"], total: Float[Tensor, "M"], factor: int = 2
) -> Float[Tensor, "N"]:
    """Write into an argument."""
    total.add_(x.sum(0) * factor)
    return x.sum(1)


@opsmith.op("fuzz::patch")
def patch(
    x: Float[Tensor, "H W"], size: Annotated[tuple[int, int], Between(0, 64)]
) -> Float[Tensor, "{size[0]} {size[1]}"]:
    """Numbers that say how large the result is."""
    out = x.new_zeros(size)
    height, width = min(size[0], x.shape[0]), min(size[1], x.shape[1])
    out[:height, :width] = x[:height, :width]
    return out


@opsmith.op("fuzz::positive", data_dependent=("K",))
def positive(x: Float[Tensor, "N"]) -> Float[Tensor, "K"]:
    """A result as large as the values say."""
    return x[x > 0]


@opsmith.op("fuzz::peak")
def peak(
    x: Float[Tensor, "N M"], mask: Bool[Tensor, "N M"]
) -> tuple[Float[Tensor, "N"], Int64[Tensor, "N"]]:
    """Two results."""
    return (x.masked_fill(~mask, 0)).sum(1), mask.sum(1)


@opsmith.op("fuzz::spread")
def spread(
    x: Float[Tensor, "N"], weights: Sequence[float], *, shift: float = 0.0
) -> Float[Tensor, "N"]:
    """A sequence of any length, and an argument that is given by name."""
    return x * (sum(weights) + shift)


NATIVE = (scale, take, blend, total, add_to, patch, positive, peak, spread)
for _operator in NATIVE:
    _operator.register_kernel("cpu", source=Path(__file__).parent / "fuzz_operators.cpp")


@opsmith.op("fuzz::in_python", autograd="reference")
def in_python(
    x: Float[Tensor, "N C"],
    rows: Annotated[Int64[Tensor, "P"], Index("N")],
    bias: Float[Tensor, "C"] | None = None,
    k: float = 1.0,
) -> Float[Tensor, "P C"]:
    """No kernel but the reference."""
    out = x[rows] * k
    return out if bias is None else out + bias


OPERATORS = {op.signature.name: op for op in (*NATIVE, in_python)}
