"""Operators with kernels for CUDA that need no compiler for it: "device code" in C++."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
from fake_cuda import SOURCES as FAKE_CUDA
from jaxtyping import Float, Float32, Int64
from torch import Tensor

import opsmith
from opsmith import Index

SOURCES = Path(__file__).parent / "sources" / "cuda"


@opsmith.op("ort_cuda::pick")
def pick(
    x: Float[Tensor, "N M"],
    index: Annotated[Int64[Tensor, "K"], Index("N")],
    others: list[Float[Tensor, "N M"]],
    scale: float = 1.0,
) -> Float[Tensor, "K M"]:
    """Rows of a sum."""
    return sum(others, x)[index] * scale


@opsmith.op("ort_cuda::add_rows", mutates_args=("total",))
def add_rows(x: Float32[Tensor, "N M"], total: Float32[Tensor, "M"]) -> None:
    """Add every row to `total`."""
    total.add_(x.sum(0))


@opsmith.op("ort_cuda::positive", data_dependent=("K",))
def positive(x: Float32[Tensor, "N"]) -> Float32[Tensor, "K"]:
    """The elements above zero."""
    return x[x > 0]


@opsmith.op("ort_cuda::on_the_host")
def on_the_host(x: Float32[Tensor, "*n"]) -> Float32[Tensor, "*n"]:
    """Has a kernel for the CPU alone."""
    return x + 1


@opsmith.op("ort_cuda::scale")
def scale(x: Float32[Tensor, "N C"], factor: float) -> Float32[Tensor, "N C"]:
    """Has a kernel in Triton, in test_cuda_provider.py."""
    return x * factor


for _operator in (pick, add_rows, positive):
    _operator.register_kernel(
        "cuda",
        source=SOURCES / f"{_operator.signature.name}.cpp",
        flags=(f"-I{FAKE_CUDA}",),
    )
pick.register_kernel("cpu", source=SOURCES / "pick_on_host.cpp")
positive.register_cases(lambda dtype, seed: [{"x": torch.tensor([1.0, -1.0, 2.0])}])
