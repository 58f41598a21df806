"""A trial and its collaborators refuse attributes that they do not have."""

import pytest
from jaxtyping import Float
from torch import Tensor

import opsmith
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
