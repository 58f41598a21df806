"""An operator whose kernel looks at values, and may fail."""

from typing import Annotated

from jaxtyping import Float32, Int64
from torch import Tensor

import opsmith
from opsmith import Index


@opsmith.op("sample::pick")
def pick(
    x: Float32[Tensor, "N"], rows: Annotated[Int64[Tensor, "P"], Index("N")]
) -> Float32[Tensor, "P"]:
    """Take elements of x, none of which may be negative."""
    return x[rows]


pick.register_kernel("cpu", source="kernels/pick.cpp")
pick.register_kernel("cuda", source="kernels/pick.cu")
