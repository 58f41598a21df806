"""A trial and its collaborators refuse attributes that they do not have."""

import pytest
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import checks
from opsmith.checks.cases.subject import subjects_of
from opsmith.checks.trial.trial import Trial


@opsmith.op("trial_test::doubled")
def doubled(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2


@pytest.mark.parametrize("name", ["wrong", "cohort", "threads"])
def test_a_check_that_sets_what_another_object_holds_gets_an_error(name: str) -> None:
    trial = Trial(subjects_of(doubled)[0], "a check")
    with pytest.raises(AttributeError, match=name):
        setattr(trial, name, "OPS-VALUE-WRONG")
    trial.attribution.wrong = "OPS-VALUE-WRONG"
    with pytest.raises(AttributeError, match="errors"):
        trial.counts.errors = 1.0


def test_a_fake_kernel_that_tells_of_vast_results_keeps_no_small_sample_away() -> None:
    @opsmith.op("trial_test::vast")
    def vast(x: Float[Tensor, "N"]) -> Tensor:
        return x * 2

    vast.register_fake(lambda x: x.new_empty(2_000_000_000))
    vast.register_kernel("cpu")(lambda x: x * 3)
    rows = checks.run([vast], select=["reference", "fake"], examples=8, isolate=False).rows
    assert [row.code for row in rows] == ["OPS-VALUE-WRONG", "OPS-FAKE-SHAPE"]
