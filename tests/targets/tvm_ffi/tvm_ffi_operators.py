"""An operator whose backward is an operator, with both kernels in one file."""

from __future__ import annotations

from pathlib import Path

from jaxtyping import Float
from torch import Tensor

import opsmith

SOURCE = Path(__file__).parent / "sources" / "cube.cpp"


@opsmith.op("tvm_ffi_test::cube", where=("type > -8",))
def cube(x: Float[Tensor, "N"], scale: float = 1.0, type: int = 0) -> Float[Tensor, "N"]:
    """Give scale * x³ + type; no name of a parameter disturbs the package."""
    return scale * x * x * x + type


@opsmith.op("tvm_ffi_test::cube_backward")
def cube_backward(
    result: Float[Tensor, "N"], grad: Float[Tensor, "N"], x: Float[Tensor, "N"], scale: float
) -> Float[Tensor, "N"]:
    """Give the gradient of `cube` with respect to `x`."""
    return grad * 3 * scale * x * x


cube.register_kernel("cpu", source=SOURCE)
cube_backward.register_kernel("cpu", source=SOURCE)
cube.register_backward(cube_backward, grads={"x": 0})
