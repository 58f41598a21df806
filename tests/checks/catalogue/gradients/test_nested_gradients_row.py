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


def test_derivatives_that_disagree_in_pytorch_itself_are_told_and_lost_ones_are_found(monkeypatch):
    """A norm below `eps` is clamped, and one of PyTorch's formulas differentiates past that."""

    def similarity(x: Float[Tensor, "N 1"], y: Float[Tensor, "N 1"]) -> Float[Tensor, "N"]:
        return torch.cosine_similarity(x, y, 1, 1.0)

    operator = opsmith.op("nested_row::similarity", autograd="reference")(similarity)

    @operator.register_cases(only=True)
    def cases(dtype, seed):
        yield {"x": torch.tensor([[-0.4]], dtype=dtype), "y": torch.tensor([[1.2]], dtype=dtype)}

    row = row_of(operator)
    assert (row.status, row.message) == ("passed", "")
    assert row.notes == (
        "the reference's own second derivatives disagree with each other: other ones than by "
        "autograd, twice, come from torch.func.jvp of grad",
    )
    monkeypatch.setattr(autograd, "recording", nullcontext)
    assert row_of(operator).code == "OPS-GRADIENT-NESTED"


@pytest.mark.parametrize(("digits", "status"), [(21, "passed"), (12, "failed")])
def test_only_a_slight_loss_of_digits_in_single_precision_is_rounding(digits, status):
    """Keep the first derivative right, and round what it is differentiated by."""

    def sine(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return torch.sin(x)

    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        slope = -torch.sin(x.detach())
        if x.dtype == torch.float32:
            scale = 2.0 ** (digits - slope.abs().log2().ceil())
            slope = torch.floor(slope * scale) / scale
        return grad * (torch.cos(x.detach()) + slope * (x - x.detach()))

    operator = opsmith.op(f"nested_row::sine{digits}")(sine)
    operator.register_autograd(
        backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs)
    )
    row = row_of(operator)
    assert row.status == status, row.message
