"""An order of blocks and threads is named where another order gives the right results."""

import pytest
import torch
from jaxtyping import Float32
from torch import Tensor

import opsmith
from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure
from opsmith.checks.cases.subject import Subject
from opsmith.checks.catalogue.cuda import _PHASES, _compare
from opsmith.checks.harness import Called
from opsmith.checks.trial.trial import Trial


@opsmith.op("cuda_orders::doubled")
def doubled(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2


def compare(x, results):
    trial = Trial(Subject(doubled, "cpu", "cpu"), "cuda-on-cpu")
    calls = [Called("", [result], {}, split=False) for result in results]
    _compare(trial, calls, trial.truth(Case(doubled.signature, {"x": x})))


def message(*factors):
    """Return the message for a kernel that multiplied by another factor in each order."""
    x = torch.ones(1)
    with pytest.raises(Failure) as raised:
        compare(x, [x * factor for factor in factors])
    return str(raised.value)


def test_a_kernel_that_is_wrong_in_any_order_is_not_blamed_on_one():
    assert message(3, 3, 3).startswith("in each of 3 orders of blocks and threads: the result[0]")


def test_the_order_that_gives_a_wrong_result_is_named():
    what = "with blocks and threads in order 2, and tensors that begin at a page"
    assert message(2, 3, 2).startswith(f"{what}: the result[0] is 3")


def test_an_element_that_nothing_wrote_is_told_as_that():
    filled = [torch.full((4,), one.fill, dtype=torch.uint8).view(torch.float32) for one in _PHASES]
    with pytest.raises(Failure, match=r"^the result\[0\] was never written$") as raised:
        compare(torch.ones(1), filled)
    assert raised.value.code == "OPS-RESULT-UNWRITTEN"
