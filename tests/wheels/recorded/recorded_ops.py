"""Operators whose calls need no Python: a gradient that is recorded, and a tensor written into."""

from jaxtyping import Float
from torch import Tensor

import opsmith


@opsmith.op("wheel_gates::scaled", autograd="reference")
def scaled(x: Float[Tensor, "N"], w: Float[Tensor, "N"], factor: float = 2.0) -> Float[Tensor, "N"]:
    """Multiply the square of x by w."""
    return factor * w * x * x


@opsmith.op("wheel_gates::scaled_backward", autograd="reference")
def scaled_backward(
    grad: Float[Tensor, "N"], x: Float[Tensor, "N"], w: Float[Tensor, "N"], factor: float
) -> tuple[Float[Tensor, "N"], Float[Tensor, "N"]]:
    """Give the gradients of x and of w."""
    return 2 * factor * w * x * grad, factor * x * x * grad


@opsmith.op("wheel_gates::add_into", mutates_args=("out",))
def add_into(x: Float[Tensor, "N"], out: Float[Tensor, "N"]) -> None:
    """Add x to out."""
    out += x


scaled.register_backward(scaled_backward, grads={"x": 0, "w": 1})
for operator in (scaled, scaled_backward, add_into):
    operator.register_kernel("cpu", source=f"{operator.signature.name}.cpp")
