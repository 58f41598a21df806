"""Operators with kernels for the tests' device; importing this brings the device."""

from __future__ import annotations

from typing import Annotated

import backend
from jaxtyping import Float, Float32, Int64
from torch import Tensor

import opsmith
from opsmith import Index

FLAGS = (f"-I{backend.INCLUDE}",)


@opsmith.op("npu_tests::add_scaled", autograd="reference")
def add_scaled(
    x: Float[Tensor, "N M"], y: Float[Tensor, "N M"], alpha: float
) -> Float[Tensor, "N M"]:
    """Add `alpha` times `y` to `x`."""
    return x + alpha * y


add_scaled.register_kernel("npu", source="sources/add_scaled.cpp", flags=FLAGS)


@opsmith.op("npu_tests::pick_rows")
def pick_rows(
    x: Float32[Tensor, "N M"], index: Annotated[Int64[Tensor, "K"], Index("N")]
) -> Float32[Tensor, "K M"]:
    """Take rows of `x`."""
    return x[index]


pick_rows.register_kernel("npu", source="sources/pick_rows.cpp", flags=FLAGS)
