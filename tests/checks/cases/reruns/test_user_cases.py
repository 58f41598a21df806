"""Judge a case that is tried again as it was judged before."""

from pathlib import Path

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith.checks.cases.case import FAILED_BEFORE, Case
from opsmith.checks.cases.reruns.stored_cases import ORIGIN, given_cases, write_cases


@opsmith.op("user_cases::same")
def same(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x.clone()


@pytest.mark.parametrize(
    ("origin", "sampled"),
    [("", True), (FAILED_BEFORE, True), ("registered", False), (ORIGIN, False)],
)
def test_a_case_stays_sampled_or_not_in_a_file(origin: str, sampled: bool, tmp_path: Path) -> None:
    # The row `exact` refutes formulas by sampled arguments, and by others only where values differ.
    path = tmp_path / "cases"
    write_cases([Case(same.signature, {"x": torch.ones(2)}, origin=origin)], path)
    (again,) = given_cases(same, str(path))
    assert again.sampled == sampled
    assert again.values["x"].tolist() == [1, 1]
