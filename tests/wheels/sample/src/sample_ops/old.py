"""An operator whose kernel is written against one PyTorch."""

from jaxtyping import Float32
from torch import Tensor

import opsmith


@opsmith.op("sample::negated")
def negated(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    """Give -x."""
    return -x


negated.register_kernel("cpu", source="kernels/negated.cpp", api="torch")
