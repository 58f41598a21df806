"""Three operators whose kernels are one source with a TORCH_LIBRARY block of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from jaxtyping import Float32, Int64
from torch import Tensor

import opsmith
from opsmith import Index

SOURCE = Path(__file__).with_name("torch_library_sources") / "muladd.cpp"


@opsmith.op("extension_cpp::mymuladd", autograd="reference")
def mymuladd(a: Float32[Tensor, "*n"], b: Float32[Tensor, "*n"], c: float) -> Float32[Tensor, "*n"]:
    """`a * b + c`."""
    return a * b + c


@opsmith.op("extension_cpp::mymul", autograd="reference")
def mymul(a: Float32[Tensor, "*n"], b: Float32[Tensor, "*n"]) -> Float32[Tensor, "*n"]:
    """`a * b`."""
    return a * b


@opsmith.op("extension_cpp::myadd_out", mutates_args=("out",))
def myadd_out(
    a: Float32[Tensor, "*n"], b: Float32[Tensor, "*n"], out: Float32[Tensor, "*n"]
) -> None:
    """Write `a + b` into `out`."""
    out.copy_(a + b)


@opsmith.op("extension_cpp::mypick")
def mypick(
    x: Float32[Tensor, "N"],
    at: Annotated[Int64[Tensor, "K"], Index("N")],
    scales: list[float],
    more: list[Tensor],
    names: tuple[str, str],
    name: str | None = None,
    limit: int | None = None,
) -> Float32[Tensor, "K"]:
    """`x[at]`; takes arguments of every kind."""
    return x[at]


for operator in (mymuladd, mymul, myadd_out, mypick):
    operator.register_kernel("cpu", source=SOURCE, api="torch", flags=("-O0",))
