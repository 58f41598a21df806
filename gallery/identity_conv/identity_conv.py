"""`tutorial::identity_conv`."""

from typing import Any

from jaxtyping import Float
from torch import Tensor

import opsmith


@opsmith.op("tutorial::identity_conv", parallel_dims=("*shape",), autograd="reference")
def identity_conv(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Give a copy of the argument, bit for bit.

    Args:
        x: any shape, any float dtype.

    Returns:
        The same values, also of NaN and -0, in memory of their own.

    Source:
        The operator of a model that tests export: convolution by one, class, operator, convolution.
    """
    return x.clone()


identity_conv.register_kernel("cpu", source="identity_conv.cpp")
identity_conv.register_kernel("cuda", source="identity_conv.cu")


@identity_conv.register_autograd
def _backward(ctx: Any, grad: Tensor) -> Tensor:
    return grad
