"""`tutorial::numpy_sin`."""

import numpy as np
from jaxtyping import AbstractDtype
from torch import Tensor

import opsmith


class NumpyFloat(AbstractDtype):
    """The real floating dtypes of NumPy, which has no bfloat16."""

    dtypes = ["float16", "float32", "float64"]  # noqa: RUF012


@opsmith.op("tutorial::numpy_sin", mutates_args=("output",), device_types="cpu")
def numpy_sin(input: NumpyFloat[Tensor, "*shape"], output: NumpyFloat[Tensor, "*shape"]) -> None:
    """Write the sine of `input` into `output`.

    Args:
        input: radians, on the CPU.
        output: the same shape and dtype; it may be `input` itself.

    Source:
        PyTorch's tutorial on custom operators in Python, which has it for mutated arguments.
    """
    output.copy_(input.sin())


@numpy_sin.register_kernel("cpu")
def _numpy(input: Tensor, output: Tensor) -> None:
    np.sin(input.numpy(), out=output.numpy())
