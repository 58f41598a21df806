"""The row `nested-gradients`: derivatives under nested torch.func are right, or raise."""

from contextlib import nullcontext

import nested_operators as ops
import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import checks
from opsmith.operators.dispatch import autograd


def row_of(operator, **settings):
    (row,) = checks.run(operator, select=["nested-gradients"], isolate=False, **settings).rows
    return row


@pytest.mark.parametrize("name", ops.PYTHON)
def test_right_gradients_pass(name):
    row = row_of(ops.PYTHON[name])
    assert (row.status, row.message) == ("passed", ""), name
    assert row.cases


@pytest.mark.parametrize("name", sorted({*ops.PYTHON} - {"middle"}))
def test_levels_that_record_nothing_are_found(name, monkeypatch):
    monkeypatch.setattr(autograd, "recording", nullcontext)
    row = row_of(ops.PYTHON[name])
    assert (row.status, row.code) == ("failed", "OPS-GRADIENT-NESTED")
    assert row.message.startswith(("torch.func.", "autograd of torch.func.grad: "))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_what_pytorchs_own_forward_formula_loses_by_rounding_is_right(seed):
    """Forward mode computes the tangent of a maximum as that of y, plus the difference of both."""

    def maximum(x: Float[Tensor, "N"], y: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return torch.maximum(x, y)

    operator = opsmith.op(f"nested_row::maximum{seed}", autograd="reference")(maximum)
    row = row_of(operator, seed=seed, examples=40)
    assert (row.status, row.message) == ("passed", "")
