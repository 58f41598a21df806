"""A linear layer whose weights are four bits each, with a scale for each group."""

from typing import Annotated

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

import opsmith
from opsmith import Unspecified


@opsmith.op(
    "today::int4_linear", autograd="reference", parallel_dims=("B",), where=("R*G % 2 == 0",)
)
def int4_linear(
    x: Float[Tensor, "B R*G"],
    packed: UInt8[Tensor, "N R*G//2"],
    scales: Annotated[Float[Tensor, "N R"], Unspecified(nan=True, inf=True)],
) -> Float[Tensor, "B N"]:
    """Multiply by a matrix of N rows, in R groups of G weights.

    Args:
        x: the activations.
        packed: two weights in each byte, the first in the lower half, each plus 8.
        scales: the factor of each group of weights.

    Source:
        Frantar et al., "GPTQ", 2022; ``torch.ops.aten._weight_int4pack_mm`` without zero points.
    """
    nibbles = torch.stack((packed & 15, packed >> 4), 2).reshape(packed.shape[0], x.shape[1])
    groups = (nibbles.to(x.dtype) - 8).reshape(*scales.shape, -1)
    weight = (groups * scales[:, :, None]).reshape(nibbles.shape)
    return x @ weight.T


int4_linear.register_kernel("cpu", source="int4_linear.cpp")
