"""An order of blocks and threads is named where another order gives the right results."""

import pytest
import torch
from jaxtyping import Float32
from torch import Tensor

import opsmith
from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure
from opsmith.checks.cases.subject import Subject
from opsmith.checks.catalogue.cuda import _compare
from opsmith.checks.harness import Called
from opsmith.checks.trial.trial import Trial


@opsmith.op("cuda_orders::doubled")
def doubled(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2


def message(*factors):
    """Return the message for a kernel that multiplied by another factor in each order."""
    trial = Trial(Subject(doubled, "cpu", "cpu"), "cuda-on-cpu")
    x = torch.ones(1)
    calls = [Called("", [x * factor], {}, split=False) for factor in factors]
    with pytest.raises(Failure) as raised:
        _compare(trial, calls, trial.truth(Case(doubled.signature, {"x": x})))
    return str(raised.value)


def test_a_kernel_that_is_wrong_in_any_order_is_not_blamed_on_one():
    assert message(3, 3, 3).startswith("in each of 3 orders of blocks and threads: the result[0]")


def test_the_order_that_gives_a_wrong_result_is_named():
    what = "with blocks and threads in order 2, and tensors that begin at a page"
    assert message(2, 3, 2).startswith(f"{what}: the result[0] is 3")
