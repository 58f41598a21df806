"""Sizes that 32 bits cannot number; here with smaller numbers in their place."""

from typing import Annotated

import pytest
import torch
from jaxtyping import Bool, Float, Float32, Int8, Shaped, UInt8
from torch import Tensor

import opsmith
from opsmith import Between, checks
from opsmith.checks.cases import large_calls
from opsmith.checks.catalogue import large
from opsmith.checks.protocol import selected


@pytest.fixture(autouse=True)
def smaller(monkeypatch):
    """2**31 becomes about two thousand."""
    monkeypatch.setattr(large, "_ELEMENTS", 2125)
    monkeypatch.setattr(large_calls, "PERIOD", 101)
    monkeypatch.setattr(large, "_CHUNK", 1000)


def row(reference, kernel=None, **options):
    operator = opsmith.op(f"large::{reference.__name__}", **options)(reference)
    if kernel is not None:
        operator.register_kernel("cpu", kernel)
    return checks.run(operator, select=["large"], isolate=False).rows[-1]


def inverted(
    x: UInt8[Tensor, "N C"], bias: UInt8[Tensor, "C"] | None, k: int = 1
) -> UInt8[Tensor, "N C"]:
    return 255 - x + (0 if bias is None else bias)


def test_what_lies_far_behind_is_compared_and_named():
    found = row(inverted)
    assert (found.status, found.cases) == ("passed", 1), found.explain()
    assert found.notes[0].startswith("with x: uint8 (47, 47), bias")

    def wraps(x, bias, k):
        out = inverted(x, bias)
        out.view(-1)[2048:] = 7
        return out

    found = row(inverted, wraps)
    assert (found.status, found.code) == ("failed", "OPS-SIZE-LARGE")
    assert found.message.startswith("the result.flatten()[2000:][")
    assert ", called with x: uint8 (47, 47)" in found.message


def test_it_runs_where_it_is_asked_for():
    assert "large" not in {one.name for one in selected(None)}
    assert "large" in {one.name for one in selected(None, ["large"])}


def summed(x: Annotated[Int8[Tensor, "N"], Between(0, 3)]) -> Float32[Tensor, "1"]:
    return x.sum(0, keepdim=True, dtype=torch.float64).float()


def test_one_dimension_is_made_long_and_keeps_its_range():
    seen = []

    def kernel(x):
        seen.append((x.shape, int(x.min()), int(x.max())))
        return summed(x)

    assert row(summed, kernel).status == "passed"
    assert seen == [((2125,), 0, 3)]
    assert row(summed, lambda x: summed(x[:2048])).status == "failed"


def flagged(x: Shaped[Tensor, "*n"], keep: Bool[Tensor, "*n"]) -> Shaped[Tensor, "*n"]:
    return x.masked_fill(~keep, 0)


def test_dimensions_of_any_number_and_generic_dtypes_of_one_byte_will_do():
    found = row(flagged)
    assert found.status == "passed", found.explain()
    assert "(47, 47), keep: bool (47, 47)" in found.notes[0]


def added(x: Int8[Tensor, "N C"], out: Int8[Tensor, "N C"]) -> None:
    out.add_(x)


def test_what_is_written_is_compared_too():
    assert row(added, mutates_args=("out",)).status == "passed"

    def some(x, out):
        out[:40].add_(x[:40])

    assert row(added, some, mutates_args=("out",)).status == "failed"


def doubled(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2


def test_where_it_cannot_be_tried_the_row_says_why(monkeypatch):
    found = row(doubled)
    assert (found.status, found.message) == (
        "not applicable",
        "no argument of one byte (bool, uint8, int8) has a dimension that can be large",
    )
    monkeypatch.setattr(large, "available", lambda: 2 * 47 * 47)
    found = row(inverted)
    assert found.status == "not applicable"
    assert found.message == "needs 0 GiB of memory, and may take 60% of the 0 GiB that are free"
