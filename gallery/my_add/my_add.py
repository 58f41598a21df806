"""`tutorial::my_add`."""

from typing import Any

from jaxtyping import Float
from torch import Tensor

import opsmith


@opsmith.op("tutorial::my_add", parallel_dims=("*shape",), autograd="reference")
def my_add(a: Float[Tensor, "*shape"], b: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Give 2a + b, elementwise.

    Args:
        a: any shape.
        b: the same shape; nothing is broadcast.

    Returns:
        2a + b.

    Source:
        The extension in many tutorials, an ``autograd.Function`` with a ``symbolic`` method.
    """
    return 2 * a + b


my_add.register_kernel("cpu", source="my_add.cpp")
my_add.register_kernel("cuda", source="my_add.cu")


@my_add.register_autograd
def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
    return 2 * grad, grad
