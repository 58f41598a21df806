"""An error that rounding explains names no size, however many elements the case has."""

import pytest
import torch
from jaxtyping import Float32
from torch import Tensor

import opsmith
from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure
from opsmith.checks.cases.subject import Subject
from opsmith.checks.trial.trial import Trial


@opsmith.op("slight_errors::tripled")
def tripled(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return 3 * x


@pytest.mark.parametrize(
    ("error", "code"), [(5e-6, "OPS-VALUE-WRONG"), (1e-2, "OPS-SIZE-BOUNDARY")]
)
def test_one_of_many_elements_that_is_hardly_wrong_is_no_fault_of_a_size(error, code):
    trial = Trial(Subject(tripled, "reference", "cpu"), "reference")
    trial.attribution.wrong = "OPS-SIZE-BOUNDARY"
    x = torch.ones(4097)
    found = 3 * x
    found[2935] += error
    with pytest.raises(Failure) as raised:
        trial.compare([found], trial.truth(Case(tripled.signature, {"x": x})))
    assert raised.value.code == code
