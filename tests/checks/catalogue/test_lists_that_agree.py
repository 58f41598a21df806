"""Lists that share sizes place by place: cases for them, and what their validation must refuse."""

from __future__ import annotations

from typing import Annotated

import pytest
import torch
from jaxtyping import Float, Float32
from torch import Tensor

import opsmith
from opsmith import Between, checks
from opsmith.checks.cases.case import Case
from opsmith.checks.cases.layouts import EXPANDED
from opsmith.checks.cases.subject import subjects_of
from opsmith.checks.cases.wanted import Wanted
from opsmith.checks.trial.trial import Settings, Trial
from opsmith.signature.items import ItemSizes


def moved(
    params: list[Float[Tensor, "?*S"]],
    grads: list[Float[Tensor, "?*S"]],
    norms: list[Float32[Tensor, "?N ?N C"]],
    scales: list[Float32[Tensor, "... ?N"]] | None,
) -> Float32[Tensor, "C"]:
    """Move each parameter by its gradient; add up the diagonals."""
    for param, grad in zip(params, grads, strict=True):
        param.sub_(grad)
    diagonals = [norm.diagonal().sum(1) for norm in norms]
    return torch.stack(diagonals).sum(0)


def _operator(name: str) -> opsmith.Operator:
    # One of its own for each test, since an operator remembers which calls were valid.
    return opsmith.op(f"lists_that_agree::{name}", mutates_args=("params",))(moved)


def _samples(operator: opsmith.Operator, count: int) -> list[Case]:
    found: list[Case] = []
    Trial(subjects_of(operator)[0], "sampling", Settings(3, count)).each(found.append)
    return found


def test_samples_agree_place_by_place_and_differ_from_place_to_place() -> None:
    operator = _operator("sampled")
    cases = _samples(operator, 50)
    several = set()
    for case in cases:
        operator(**case.make())
        values = case.values
        assert len(values["params"]) == len(values["grads"])
        assert [p.shape for p in values["params"]] == [g.shape for g in values["grads"]]
        if values["scales"] is not None:
            assert [s.shape[-1] for s in values["scales"]] == [n.shape[0] for n in values["norms"]]
        several.add(len({p.shape for p in values["params"]}))
    assert {len(case.values["params"]) for case in cases} == {0, 1, 2, 3}
    assert {len(case.values["norms"]) for case in cases} == {1, 2, 3}
    assert {1, 2, 3} <= several
    assert any(len({p.dim() for p in case.values["params"]}) > 1 for case in cases)


def _validation(name: str) -> checks.Row:
    (row,) = checks.run(_operator(name), select=["validation"], examples=4, isolate=False).rows
    return row


@pytest.mark.slow
def test_lists_that_do_not_agree_are_tried_one_at_a_time() -> None:
    row = _validation("compared")
    assert row.status == "passed", row.message
    (kinds,) = [note for note in row.notes if "kinds of bad argument" in note]
    assert int(kinds.split()[0]) >= 20


@pytest.mark.parametrize(
    ("part", "said"),
    [("of_list", "without its last tensor"), ("of_item", "as its dimension")],
)
def test_a_validation_that_forgets_to_compare_lists_fails(
    part: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ItemSizes, part, lambda *_: [])
    row = _validation(f"without_{part}")
    assert row.status == "failed"
    assert said in row.message


def averaged(
    squares: Annotated[list[Float32[Tensor, "?*S"]], Between(0, None)],
    lengths: Annotated[list[Float32[Tensor, "?N"]], Between(-1, 0.5)] | None,
) -> Float32[Tensor, ""]:
    """The mean of the roots, and the sum of the lengths."""
    total = torch.zeros(())
    for square in squares:
        total = total + square.sqrt().sum()
    for length in lengths or ():
        total = total + length.sum()
    return total


def test_tensors_of_a_list_that_is_only_read_may_repeat_their_values() -> None:
    operator = _operator("expanded")
    found: list[Case] = []
    wanted = Wanted(layouts=(EXPANDED,), sizes=(2, 3))
    Trial(subjects_of(operator)[0], "layouts", Settings()).each(found.append, wanted=wanted)
    made = [case.make() for case in found]
    assert any(0 in grad.stride() for arguments in made for grad in arguments["grads"])
    assert all(one.is_contiguous() for arguments in made for one in arguments["params"])


def test_values_of_every_tensor_of_a_list_are_sampled_from_its_range() -> None:
    operator = opsmith.op("lists_that_agree::averaged")(averaged)
    cases = _samples(operator, 40)
    squares = torch.cat([one.flatten() for case in cases for one in case.values["squares"]])
    lengths = torch.cat([one for case in cases for one in case.values["lengths"] or ()])
    assert squares.numel() > 100 and bool((squares >= 0).all())
    assert lengths.numel() > 100 and bool((lengths >= -1).all() and (lengths <= 0.5).all())


@pytest.mark.slow
def test_a_validation_that_forgets_a_list_s_range_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = opsmith.op("lists_that_agree::averaged_too")(averaged)
    (row,) = checks.run(operator, select=["validation"]).rows
    assert row.status == "passed", row.message
    monkeypatch.setattr("opsmith.operators.core.validation.check_values", lambda *_: None)
    (row,) = checks.run(operator, select=["validation"]).rows
    assert row.status == "failed"
    assert row.message.startswith("'squares' with the value -1: accepted, expected an error")
