"""Operators with kernels for the tests' device; importing this brings the device."""

from __future__ import annotations

import backend
from jaxtyping import Float
from torch import Tensor

import opsmith

FLAGS = (f"-I{backend.INCLUDE}",)


@opsmith.op("npu_tests::add_scaled", autograd="reference")
def add_scaled(
    x: Float[Tensor, "N M"], y: Float[Tensor, "N M"], alpha: float
) -> Float[Tensor, "N M"]:
    """Add `alpha` times `y` to `x`."""
    return x + alpha * y


add_scaled.register_kernel("npu", source="sources/add_scaled.cpp", flags=FLAGS)
