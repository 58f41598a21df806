"""Operators that between them have every kind of argument and result that a C++ kernel can have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import torch
from jaxtyping import AbstractDtype, Float, Int64
from torch import Tensor

import opsmith
from opsmith import Index, Sorted

SOURCES = Path(__file__).parent / "sources"
FLAGS = ("-O0", "-Wall", "-Wextra", "-Werror")


class Real(AbstractDtype):
    """Every dtype that ONNX Runtime computes with."""

    dtypes = [  # noqa: RUF012
        "bool", "uint8", "int8", "int16", "int32", "int64",
        "float16", "bfloat16", "float32", "float64",
    ]  # fmt: skip


@opsmith.op("ort_test::everything")
def everything(
    x: Float[Tensor, "N M"],
    bias: Float[Tensor, "M"] | None,
    index: Annotated[Int64[Tensor, "N"], Index("N")] | None,
    others: list[Float[Tensor, "N M"]],
    more: list[Float[Tensor, "_"]] | None,
    k: int,
    on: bool,
    sizes: Sequence[int],
    weights: tuple[float, float],
    scale: float = 0.1,
    mode: str = "plain",
    flags: Sequence[bool] = (),
    extra: int | None = None,
    ratio: float | None = None,
    label: str | None = None,
    *,
    shift: float = 0.0,
) -> tuple[Float[Tensor, "N M"], Int64[Tensor, "N"]]:
    """Use every argument in a way that shows in the results."""
    out = x * scale + (k if on else -k) + (weights[0] - weights[1]) + shift
    if bias is not None:
        out = out + bias
    for other in others:
        out = out + other
    for item in more or []:
        out = out + item.sum()
    if ratio is not None:
        out = out * ratio
    number = sum(sizes) + 10 * sum(flags) + 100 * (0 if extra is None else extra)
    number += 1000 * len(mode) + 10000 * (0 if label is None else len(label))
    number += 1000000 * (0 if more is None else 1 + len(more))
    rows = torch.arange(x.shape[0]) if index is None else index
    return out, rows + number


@opsmith.op("ort_test::accumulate", mutates_args=("total",))
def accumulate(
    x: Float[Tensor, "N M"], total: Float[Tensor, "M"], factor: int = 2
) -> Float[Tensor, "N"]:
    """Add the columns' sums, times a factor, to `total`; give the rows' sums."""
    total.add_(x.sum(0) * factor)
    return x.sum(1)


@opsmith.op("ort_test::positive_rows", data_dependent=("K",))
def positive_rows(x: Float[Tensor, "N M"]) -> tuple[Float[Tensor, "K M"], Int64[Tensor, "K"]]:
    """The rows whose first element is positive, and which they are."""
    rows = (x[:, 0] > 0).nonzero().squeeze(1)
    return x[rows], rows


@opsmith.op("ort_test::reverse")
def reverse(x: Real[Tensor, "*batch N"]) -> Real[Tensor, "*batch N"]:
    """Reverse the last dimension; large ones on the runtime's threads, with scratch memory."""
    return x.flip(-1)


@opsmith.op("ort_test::weighted_sum")
def weighted_sum(
    ignored: list[Int64[Tensor, "_"]],
    xs: list[Float[Tensor, "N M"]],
    offsets: Annotated[Sequence[int], Sorted(first=0, last="N")],
    mode: Literal["sum", "mean"] = "sum",
) -> Float[Tensor, "N M"]:
    """Nothing but elements of lists fixes sizes and dtype."""
    stacked = torch.stack(xs)
    return stacked.mean(0) if mode == "mean" else stacked.sum(0)


everything.register_kernel("cpu", source=SOURCES / "everything.cpp", flags=FLAGS)
accumulate.register_kernel("cpu", source=SOURCES / "accumulate.cpp", flags=FLAGS)
positive_rows.register_kernel("cpu", source=SOURCES / "positive_rows.cpp", flags=FLAGS)
weighted_sum.register_kernel("cpu", source=SOURCES / "weighted_sum.cpp", flags=FLAGS)
reverse.register_kernel("cpu", source=SOURCES / "reverse.cpp", flags=FLAGS)


@opsmith.op("ort_test::python_only")
def python_only(x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """Has no C++ kernel; its reference is plain PyTorch, written with mutation."""
    out = torch.zeros_like(x)
    out[..., 0] = x[..., 0]
    out.mul_(3).add_(x)
    return out


@opsmith.op("ort_test::opaque")
def opaque(x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """Cannot be traced: leaves PyTorch."""
    return torch.from_numpy(x.numpy() * 2)


@opsmith.op("ort_test::scaled")
def scaled(x: Float[Tensor, "*n"], slope: float = 0.25) -> Float[Tensor, "*n"]:
    """LeakyRelu."""
    return torch.where(x < 0, x * slope, x)


scaled.register_onnx("LeakyRelu", opset=16, attributes={"alpha": "slope"})


@opsmith.op("ort_test::mixed")
def mixed(
    x: Float[Tensor, "N M"], y: Float[Tensor, "N M"], k: int
) -> tuple[Float[Tensor, "N M"], Float[Tensor, "N"]]:
    """Several nodes, numbers as inputs, two results."""
    return x * k + y, (x * y).sum(1)


@mixed.register_onnx(opset=13)
def _mixed(op, x, y, k):
    first = op.Add(op.Mul(x, k), y)
    return first, op.ReduceSum(op.Mul(x, y), [1], keepdims=0)
