"""A sum, random arguments, and a result compared with what is right."""

import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith.checks.numerics.comparison import compare
from opsmith.checks.numerics.oracle import expected_of


@opsmith.op("comparison::total")
def total(x: Float[Tensor, "N K"]) -> Float[Tensor, "N"]:
    return x.sum(-1)


def random(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def outcome(operator, result, **arguments):
    return compare([result], expected_of(operator, arguments))
