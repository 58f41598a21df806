"""Sizes that a declaration lets follow from others: what calls and traces make of them."""

from __future__ import annotations

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith


@opsmith.op("sizes_test::swiglu", autograd="reference")
def swiglu(x: Float[Tensor, "B 2*C"]) -> Float[Tensor, "B C"]:
    a, b = x.chunk(2, dim=1)
    return torch.nn.functional.silu(a) * b


class Model(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def exported(function, *args):
    dynamic = torch.export.Dim.DYNAMIC
    shapes = tuple(dict.fromkeys(range(arg.dim()), dynamic) for arg in args)
    return torch.export.export(Model(function), args, dynamic_shapes=(shapes,)).module()


def test_an_odd_size_is_refused() -> None:
    assert swiglu(torch.ones(3, 8)).shape == (3, 4)
    with pytest.raises(opsmith.ArgumentError, match="expected 2\\*C for some C: a multiple of 2"):
        swiglu(torch.ones(3, 7))


def test_an_export_solves_sizes_that_change() -> None:
    model = exported(swiglu, torch.ones(3, 10))
    x = torch.randn(5, 12)
    assert torch.equal(model(x), swiglu(x))
    with pytest.raises(AssertionError, match="% 2 == 0"):
        model(torch.ones(5, 13))
