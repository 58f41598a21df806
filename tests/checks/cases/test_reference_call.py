"""Each evaluation of a reference is told, so that many do not look like a call that hangs."""

import time

import pytest
import torch
from jaxtyping import Float32
from torch import Tensor

import opsmith
from opsmith import checks
from opsmith.checks.cases.reference_call import after_evaluation
from opsmith.checks.numerics.gradients import expected_gradients
from opsmith.checks.numerics.oracle import expected_of


@opsmith.op("reference_call::total", autograd="reference")
def total(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N"]:
    return x.exp().sum(1)


@opsmith.op("reference_call::slow_reference")
def slow_reference(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N"]:
    time.sleep(2)
    return x.exp().sum(1)


@slow_reference.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    return x.exp().flip(1).cumsum(1)[:, -1] if x.shape[1] else x.sum(1)


@pytest.mark.parametrize("expected", [expected_of, expected_gradients])
def test_each_evaluation_for_a_tolerance_is_told(expected) -> None:
    told: list[None] = []
    token = after_evaluation.set(lambda: told.append(None))
    try:
        truth = expected(total, {"x": torch.rand(3, 5)})
        first = len(told)
        for _ in truth.rounding(0):
            pass
    finally:
        after_evaluation.reset(token)
    assert first > 0
    assert len(told) > first + 4


@pytest.mark.long
def test_a_reference_that_takes_long_is_no_kernel_that_hangs() -> None:
    report = checks.run(slow_reference, select=["reference"], time_limit=8.0, seconds=40.0)
    (row,) = (row for row in report.rows if row.check == "reference")
    assert row.code != "OPS-CALL-HANG", row.message
