"""A kink excuses a slope at the kink, and none beside it, however large the arguments are."""

from __future__ import annotations

import pytest
import torch
from jaxtyping import Float32, Float64
from torch import Tensor

import opsmith
from opsmith.checks.numerics.comparison import compare
from opsmith.checks.numerics.gradients import expected_gradients

SCALES = (1.0, 1e7, 1e13)


@opsmith.op("slopes::apart", autograd="reference")
def apart(x: Float64[Tensor, "N"], y: Float64[Tensor, "N"]) -> Float64[Tensor, "N"]:
    return (x - y).abs()


@opsmith.op("slopes::wave", autograd="reference")
def wave(x: Float64[Tensor, "N"]) -> Float64[Tensor, "N"]:
    return x.sin()


@opsmith.op("slopes::rounded", autograd="reference")
def rounded(x: Float64[Tensor, "N"], y: Float64[Tensor, "N"]) -> Float64[Tensor, "N"]:
    return (x.float() - y.float()).abs().double()


@opsmith.op("slopes::beside_single", autograd="reference")
def beside_single(x: Float64[Tensor, "N"], y: Float32[Tensor, "N"]) -> Float64[Tensor, "N"]:
    return (x - y).abs()


def wrong(operator: opsmith.Operator, factor: float, *tensors: Tensor) -> int:
    """Multiply one slope after the other, and count how often this is found."""
    arguments = dict(zip(operator.signature.by_name, tensors, strict=True))
    truth = expected_gradients(operator, arguments, [torch.ones_like(tensors[0])])
    assert truth is not None
    right = [value.to(given) for value, given in zip(truth.values, tensors, strict=True)]
    assert compare(right, truth).problem is None
    found = 0
    for place in range(len(tensors[0])):
        first = right[0].clone()
        first[place] *= factor
        found += compare([first, *right[1:]], truth).problem is not None
    return found


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("factor", [0.0, -1.0])
def test_a_wrong_slope_is_found_in_double_precision(scale: float, factor: float) -> None:
    torch.manual_seed(0)
    x = torch.randn(8, dtype=torch.float64) * scale
    assert wrong(apart, factor, x, x * (1 + 1e-9 * torch.randn_like(x))) == 8
    assert wrong(wave, factor, x) == 8


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("operator", [apart, rounded], ids=lambda one: one.name)
def test_at_the_kink_each_slope_between_its_sides_is_right(
    operator: opsmith.Operator, scale: float
) -> None:
    torch.manual_seed(0)
    x = torch.randn(8, dtype=torch.float64) * scale
    given = {"x": x, "y": x.clone()}
    truth = expected_gradients(operator, given, [torch.ones_like(x)])
    assert truth is not None
    for slope in (-1.0, -0.5, 0.5, 1.0):
        assert compare([x * 0 + slope, x * 0 - slope], truth).problem is None
    assert compare([x * 0 + 1.5, x * 0 - 1.5], truth).problem is not None


def test_what_single_precision_rounds_stays_excused_beside_double() -> None:
    """A kernel may compute with the other argument as it came."""
    torch.manual_seed(0)
    y = torch.randn(8)
    x = y.double() * (1 + 1e-8)
    truth = expected_gradients(beside_single, {"x": x, "y": y}, [torch.ones_like(x)])
    assert truth is not None
    assert compare([-truth.values[0], -truth.values[1].float()], truth).problem is None
