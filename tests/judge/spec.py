"""What the candidates in this folder are judged against."""

import torch
from jaxtyping import Float
from torch import Tensor

import opsmith


@opsmith.op("judged::scale")
def scale(x: Float[Tensor, "N C"], factor: float) -> Float[Tensor, "N C"]:
    """Multiply by a number, and add the sum of each row."""
    return x * factor + x.sum(1, keepdim=True)


@scale.register_cases
def cases(dtype: torch.dtype, seed: int):
    generator = torch.Generator().manual_seed(seed)
    for n in (2, 7):
        yield {"x": torch.randn(n, 5, generator=generator).to(dtype), "factor": 1.5}
