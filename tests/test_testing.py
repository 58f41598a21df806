"""`opsmith.testing` checks operators, and names what is none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
import opsmith.testing
from opsmith import CheckError, OpsmithError


@opsmith.op("test_testing::double")
def double(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    """Twice `x`."""
    return x * 2


@opsmith.op("test_testing::shift")
def shift(amount: Float[Tensor, "N"], x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    """The sum."""
    return x + amount


@pytest.mark.parametrize(
    ("what", "names"),
    [
        (double, ["test_testing::double"]),
        ([shift, double], ["test_testing::shift", "test_testing::double"]),
    ],
)
def test_whatever_was_declared_can_be_checked(what: Any, names: list[str]) -> None:
    report = opsmith.testing.check(what, select=["reference"], examples=3)
    assert report.ok
    assert list(dict.fromkeys(row.operator for row in report.rows)) == names


def test_a_wrong_kernel_fails() -> None:
    @opsmith.op("test_testing::wrong")
    def wrong(amount: float, x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x + amount

    wrong.register_kernel("cpu", lambda amount, x: x - amount)
    with pytest.raises(CheckError, match="test_testing::wrong: check 'reference' failed"):
        opsmith.testing.check(wrong, select=["reference"], examples=5)


def test_cases_have_every_argument() -> None:
    (case, *_) = opsmith.testing.cases(shift, examples=2)
    assert list(case) == ["amount", "x"]


@opsmith.testing.parametrize([shift, double], select=["reference"], examples=3)
def test_each_operator_gives_a_test(check: Any) -> None:
    assert check().ok


@pytest.mark.parametrize("what", [None, 3, "test_testing::double", torch.sin, [double, None]])
def test_what_cannot_be_checked_is_said(what: Any) -> None:
    with pytest.raises(OpsmithError, match=r"cannot be checked: pass an operator \(opsmith\.op\)"):
        opsmith.testing.check(what)
    with pytest.raises(OpsmithError, match="cannot be checked"):
        opsmith.testing.parametrize(what)
