"""`opsmith.testing` checks operators, custom classes and their methods, and names what is none."""

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


@opsmith.custom_class("test_testing::Shift")
class Shift:
    """Adds what it holds."""

    amount: Float[Tensor, "N"]

    def forward(self, x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        """The sum."""
        return x + self.amount

    def back(self, x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        """The difference."""
        return x - self.amount

    def get_amount(self) -> Tensor:
        """What is added."""
        return self.amount


@pytest.mark.parametrize(
    ("what", "names"),
    [
        (double, ["test_testing::double"]),
        (Shift, ["test_testing::Shift_forward", "test_testing::Shift_back"]),
        (Shift.back, ["test_testing::Shift_back"]),
        ([Shift.forward, double], ["test_testing::Shift_forward", "test_testing::double"]),
    ],
)
def test_whatever_was_declared_can_be_checked(what: Any, names: list[str]) -> None:
    report = opsmith.testing.check(what, select=["reference"], examples=3)
    assert report.ok
    assert list(dict.fromkeys(row.operator for row in report.rows)) == names


def test_a_wrong_method_fails() -> None:
    @opsmith.custom_class("test_testing::Wrong")
    class Wrong:
        amount: float

        def forward(self, x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
            return x + self.amount

    Wrong.forward.register_kernel("cpu", lambda amount, x: x - amount)
    with pytest.raises(CheckError, match="test_testing::Wrong_forward: check 'reference' failed"):
        opsmith.testing.check(Wrong, select=["reference"], examples=5)


def test_cases_of_a_method_have_its_fields() -> None:
    (case, *_) = opsmith.testing.cases(Shift.forward, examples=2)
    assert list(case) == ["amount", "x"]


@opsmith.testing.parametrize(Shift, select=["reference"], examples=3)
def test_a_class_gives_a_test_for_each_method(check: Any) -> None:
    assert check().ok


@pytest.mark.parametrize("what", [None, 3, "test_testing::double", torch.sin, [double, None]])
def test_what_cannot_be_checked_is_said(what: Any) -> None:
    with pytest.raises(OpsmithError, match=r"cannot be checked: pass an operator \(opsmith\.op\)"):
        opsmith.testing.check(what)
    with pytest.raises(OpsmithError, match="cannot be checked"):
        opsmith.testing.parametrize(what)


def test_a_method_that_returns_a_field_has_nothing_to_check() -> None:
    with pytest.raises(OpsmithError, match="only returns the field 'amount'"):
        opsmith.testing.check(Shift.get_amount)
