"""An operator that a module, or a cell of a notebook, declares again calls the later one."""

import gc

import pytest
import torch
from jaxtyping import Float32
from torch import Tensor

import opsmith
from opsmith import ArgumentError, DeclarationError

N = Float32[Tensor, "N"]


def scaled_by(number):
    @opsmith.op("declaring_again::scaled")
    def scaled(x: N) -> N:
        return x * number

    return scaled


def test_every_earlier_handle_calls_the_operator_that_took_the_name():
    first, x = scaled_by(2), torch.ones(1)
    compiled = torch.compile(_Model(first), fullgraph=True, backend="aot_eager")
    exported = torch.export.export(_Model(first), (x,)).module()
    assert compiled(x).item() == 3
    for number in (3, 4):
        scaled_by(number)
        gc.collect()
        assert first(x).item() == first.out(x, out=torch.empty(1)).item() == number
        assert first.overload is torch.ops.declaring_again.scaled.default
        assert compiled(x).item() == exported(x).item() == number + 1


def test_a_kernel_for_a_declaration_that_was_replaced_is_refused_with_the_place_of_the_other():
    first = scaled_by(2)
    second = scaled_by(3)
    words = r"declaring_again::scaled: register_kernel: another declaration .*/test_declaring_again"
    with pytest.raises(DeclarationError, match=words):
        first.register_kernel("cpu", lambda x: x * 2)
    second.register_kernel("cpu", lambda x: x + x + x)
    assert first(torch.ones(1)).item() == second(torch.ones(1)).item() == 3


class _Model(torch.nn.Module):
    def __init__(self, operator):
        super().__init__()
        self.operator = operator

    def forward(self, x):
        return self.operator(x) + 1


def test_a_call_that_does_not_fit_the_later_declaration_is_refused_by_name():
    first, x = scaled_by(2), torch.ones(1)

    @opsmith.op("declaring_again::scaled")
    def scaled(factor: float, x: N) -> N:
        return x * factor

    gc.collect()
    with pytest.raises(ArgumentError, match="declaring_again::scaled: argument 'x' is missing"):
        first(x)
    assert first(3.0, x).item() == 3
