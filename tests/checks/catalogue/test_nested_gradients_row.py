"""The row `nested-gradients`: derivatives under nested torch.func are right, or raise."""

from contextlib import nullcontext

import nested_operators as ops
import pytest

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
