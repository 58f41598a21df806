"""What points to an operator that a module, or a cell of a notebook, declares again still works."""

import gc

import pytest
import torch
from jaxtyping import Float32
from torch import Tensor

import opsmith
from opsmith import ArgumentError

N = Float32[Tensor, "N"]


def scaled_by(number):
    @opsmith.op("declaring_again::scaled")
    def scaled(x: N) -> N:
        return x * number

    return scaled


def test_every_earlier_handle_calls_the_operator_that_took_the_name():
    first, x = scaled_by(2), torch.ones(1)
    packet = torch.ops.declaring_again.scaled
    model = torch.nn.Module()
    model.forward = lambda x: first(x) + 1
    compiled = torch.compile(model.forward, fullgraph=True, backend="aot_eager")
    exported = torch.export.export(_Model(first), (x,)).module()
    assert compiled(x).item() == 3
    for number in (3, 4):
        scaled_by(number)
        gc.collect()
        assert [first(x).item(), packet(x).item(), packet.default(x).item()] == [number] * 3
        assert packet.out(x, out=torch.empty(1)).item() == number
        assert compiled(x).item() == exported(x).item() == number + 1


class _Model(torch.nn.Module):
    def __init__(self, operator):
        super().__init__()
        self.operator = operator

    def forward(self, x):
        return self.operator(x) + 1


def test_a_call_that_does_not_fit_the_later_declaration_is_refused_by_name():
    first, x = scaled_by(2), torch.ones(1)
    overload = torch.ops.declaring_again.scaled.default

    @opsmith.op("declaring_again::scaled")
    def scaled(factor: float, x: N) -> N:
        return x * factor

    gc.collect()
    with pytest.raises(ArgumentError, match="declaring_again::scaled: argument 'x' is missing"):
        first(x)
    with pytest.raises(RuntimeError, match="missing value for argument 'x'"):
        overload(x)
    assert first(3.0, x).item() == overload(3.0, x).item() == 3
