"""`npu_tutorial::add_custom`."""

from typing import Any

from jaxtyping import Float
from torch import Tensor

import opsmith


@opsmith.op("npu_tutorial::add_custom", parallel_dims=("*shape",))
def add_custom(x: Float[Tensor, "*shape"], y: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Give x + y, elementwise.

    Args:
        x: any shape.
        y: the same shape; nothing is broadcast.

    Returns:
        x + y.

    Source:
        The first operator of CANN's tutorials for Ascend C. Theirs takes sizes that its tiles
        divide; this one takes any.
    """
    return x + y


add_custom.register_kernel("npu", source="add_custom.cpp", language="ascendc")


@add_custom.register_autograd
def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
    return grad, grad
