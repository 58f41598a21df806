"""`llm::int4_linear`: a linear layer whose weights are four bits each, with a scale for a group."""

from collections.abc import Iterator
from typing import Annotated, Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

import opsmith
from opsmith import Unspecified


@opsmith.op(
    "llm::int4_linear",
    autograd="reference",
    parallel_dims=("B",),
    batch_invariant=("B",),
    where=("R*G % 2 == 0",),
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

    Returns:
        ``x @ weight.T``, where a weight is its four bits less 8, times its group's scale.

    Source:
        Frantar et al. 2022, GPTQ (arXiv:2210.17323); ``torch.ops.aten._weight_int4pack_mm``
        without zero points.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    nibbles = torch.stack((packed & 15, packed >> 4), 2).reshape(packed.shape[0], x.shape[1])
    groups = (nibbles.to(wide) - 8).reshape(*scales.shape, -1)
    weight = (groups * scales.to(wide)[:, :, None]).reshape(nibbles.shape)
    return (x.to(wide) @ weight.T).to(x.dtype)


int4_linear.register_kernel("cpu", source="int4_linear.cpp")
int4_linear.register_kernel("cuda", source="int4_linear.cu")


@int4_linear.register_cases
def _cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    generator = torch.Generator().manual_seed(seed)
    # B, N, R, G: groups that end within a byte, rows with a rest, more rows than a warp takes.
    for b, n, r, g in ((1, 5, 3, 32), (9, 4, 2, 5), (3, 7, 1, 70), (2, 3, 6, 1)):
        weights = torch.randint(256, (n, r * g // 2), generator=generator)
        yield {
            "x": torch.randn(b, r * g, generator=generator).to(dtype),
            "packed": weights.to(torch.uint8),
            "scales": (torch.rand(n, r, generator=generator) / 8).to(dtype),
        }
