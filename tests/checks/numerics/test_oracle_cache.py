"""What is right for an author's case is computed once in a run, and nowhere else is it kept."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from jaxtyping import Float32
from torch import Tensor

import opsmith
from opsmith.checks.cases.case import Case
from opsmith.checks.cases.settings import Settings
from opsmith.checks.cases.subject import subjects_of
from opsmith.checks.trial.trial import Trial
from opsmith.checks.trial.trial_gradients import true_gradients

CALLS = [0]


@opsmith.op("truths_test::scaled")
def scaled(x: Float32[Tensor, "N"], factor: float) -> Float32[Tensor, "N"]:
    CALLS[0] += 1
    return x * factor


def case(origin: str = "registered", factor: float = 2.0) -> Case:
    values = {"x": torch.arange(1, 4, dtype=torch.float32) / 3, "factor": factor}
    return Case(scaled.signature, values, origin=origin)


def truth(settings: Settings, one: Case):
    """What is right, and how often the reference ran for that."""
    before = CALLS[0]
    found = Trial(subjects_of(scaled)[0], "reference", settings).truth(one)
    return found, CALLS[0] - before


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_another_row_takes_what_the_first_one_computed(tmp_path: Path) -> None:
    settings = Settings(shared=str(tmp_path), truths=True)
    first, calls = truth(settings, case())
    assert calls > 1
    again, calls = truth(settings, case())
    assert calls == 0
    assert again.names == first.names
    assert again.exact is first.exact
    for one, other in zip(
        (*first.values, *first.spread, *first.terms),
        (*again.values, *again.spread, *again.terms),
        strict=True,
    ):
        assert torch.equal(one, other)
    # What is asked for later is computed of the same arguments.
    assert torch.equal(again.narrow[0], case().values["x"] * 2)


def test_other_arguments_have_their_own(tmp_path: Path) -> None:
    settings = Settings(shared=str(tmp_path), truths=True)
    truth(settings, case())
    other, calls = truth(settings, case(factor=3.0))
    assert calls > 1
    assert torch.allclose(other.values[0], case().values["x"].double() * 3)


def test_a_damaged_file_is_computed_again(tmp_path: Path) -> None:
    settings = Settings(shared=str(tmp_path), truths=True)
    first, _ = truth(settings, case())
    (kept,) = files(tmp_path)
    kept.write_bytes(kept.read_bytes()[:40])
    again, calls = truth(settings, case())
    assert calls > 1
    assert torch.equal(again.values[0], first.values[0])


@pytest.mark.parametrize(("truths", "origin"), [(False, "registered"), (True, "")])
def test_nothing_is_kept_unasked_and_no_sample(tmp_path: Path, truths: bool, origin: str) -> None:
    settings = Settings(shared=str(tmp_path), truths=truths)
    for _ in range(2):
        assert truth(settings, case(origin))[1] > 1
    assert not files(tmp_path)
    assert not Settings().truths, "a judge asks for none"


def test_gradients_are_kept_beside_the_results_for_the_gradients_that_came_in(
    tmp_path: Path,
) -> None:
    settings = Settings(shared=str(tmp_path), truths=True)

    def gradients(incoming: float):
        before = CALLS[0]
        trial = Trial(subjects_of(scaled)[0], "gradient", settings)
        found = true_gradients(trial, case(), [torch.full((3,), incoming)])
        assert found is not None
        return found, CALLS[0] - before

    first, calls = gradients(1.0)
    assert calls > 1
    again, calls = gradients(1.0)
    assert calls == 0
    assert again.derivative
    assert again.names == first.names == ["the gradient of 'x'"]
    assert torch.equal(again.values[0], first.values[0])
    other, calls = gradients(3.0)
    assert calls > 1
    assert other.values[0].tolist() == [6.0, 6.0, 6.0]
    truth(settings, case())
    assert len(files(tmp_path)) == 3
