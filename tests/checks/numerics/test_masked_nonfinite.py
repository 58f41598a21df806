"""Infinity and NaN that do not count: what a mask hides, and a reference multiplies by zero."""

from math import inf, nan

import pytest
import torch
from jaxtyping import Bool, Float, Float32
from torch import Tensor

import opsmith
from opsmith.checks.numerics.comparison import compare
from opsmith.checks.numerics.oracle import expected_of

pytestmark = pytest.mark.slow(cases=2)


@opsmith.op("irrelevant::masked")
def masked(x: Float[Tensor, "N K"], kept: Float[Tensor, "N K"]) -> Float[Tensor, "N"]:
    return (x * kept).sum(-1)


@opsmith.op("irrelevant::found")
def found(x: Float[Tensor, "N"]) -> Float32[Tensor, ""]:
    return (~torch.isfinite(x)).any().float()


@opsmith.op("irrelevant::any_found")
def any_found(x: Float[Tensor, "N"]) -> Bool[Tensor, ""]:
    return (~torch.isfinite(x)).any()


@opsmith.op("irrelevant::total")
def total(x: Float[Tensor, "N"], kept: Float[Tensor, "N"]) -> Float[Tensor, ""]:
    return (x * kept).sum()


KEPT = torch.tensor([[1.0, 0.0, 1.0]])


def wrong(result: Tensor, operator: opsmith.Operator, **arguments: Tensor) -> bool:
    return compare([result], expected_of(operator, arguments)).problem is not None


@pytest.mark.parametrize(
    ("row", "right"),
    [
        ((3.0, nan, 4.0), (nan, 7.0)),
        ((3.0, inf, 4.0), (nan, 7.0)),
        ((inf, nan, 4.0), (nan, inf)),
        ((inf, inf, 4.0), (nan, inf)),
        ((-inf, nan, -inf), (nan, -inf)),
        ((nan, inf, 4.0), (nan,)),
        ((inf, nan, -inf), (nan,)),
        ((inf, 2.0, 4.0), (inf,)),
    ],
)
def test_what_is_right_depends_on_what_counts(row, right):
    x = torch.tensor([row])
    for value in (nan, inf, -inf, 0.0, 7.0):
        expected = any(value == one or (value != value and one != one) for one in right)
        assert wrong(torch.tensor([value]), masked, x=x, kept=KEPT) is not expected, value


@pytest.mark.parametrize(("value", "right"), [(nan, True), (inf, True), (7.0, False)])
def test_a_result_without_dimensions_depends_on_what_counts_too(value, right):
    x = torch.tensor([inf, nan, 4.0])
    assert wrong(torch.tensor(value), total, x=x, kept=KEPT[0]) is not right


def test_each_element_has_its_own(monkeypatch):
    x = torch.tensor([[inf, nan, 1.0], [1.0, nan, -inf], [1.0, inf, 1.0], [2.0, 3.0, 4.0]])
    result = torch.tensor([inf, -inf, 2.0, 6.0])
    kept = KEPT.expand(4, 3)
    assert not wrong(result, masked, x=x, kept=kept)
    for place in range(4):
        other = result.clone()
        other[place] = 5.0
        assert wrong(other, masked, x=x, kept=kept), place
    # Too many to look at them one by one: those of an argument count all or not at all.
    monkeypatch.setattr("opsmith.checks.numerics.masked_nonfinite._MOST", 4)
    assert wrong(result, masked, x=x, kept=kept)
    assert not wrong(torch.tensor([nan, nan, 2.0, 6.0]), masked, x=x, kept=kept)


@pytest.mark.parametrize("operator", [found, any_found])
@pytest.mark.parametrize("special", [nan, inf, -inf])
def test_who_asks_for_infinity_has_to_be_told(operator, special):
    x = torch.tensor([1.0, special, 2.0])
    dtype = operator.reference(x).dtype
    assert wrong(torch.tensor(0).to(dtype), operator, x=x)
    assert not wrong(torch.tensor(1).to(dtype), operator, x=x)
