"""Arguments are exact: where two are equal, a result in floats has one right side of a jump.

Where a step of the reference is rounded on the way to the jump, either side is right.
"""

from __future__ import annotations

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith.checks.numerics.comparison import compare
from opsmith.checks.numerics.oracle import expected_of

N = Float[Tensor, "N"]


@opsmith.op("exact_ties::above")
def above(x: N, t: float) -> N:
    return torch.where(x >= t, 2 * x + 10, torch.zeros_like(x))


@opsmith.op("exact_ties::rank")
def rank(x: N) -> N:
    less, same = (x[None] < x[:, None]).sum(-1), (x[None] == x[:, None]).sum(-1)
    return (2 * less + same + 1).to(x.dtype) / 2


@opsmith.op("exact_ties::above_mean")
def above_mean(x: N) -> N:
    return torch.where(x >= x.mean(), torch.ones_like(x), torch.zeros_like(x))


@opsmith.op("exact_ties::rounded")
def rounded(x: N, step: float) -> N:
    return torch.round(x / step) * step


@opsmith.op("exact_ties::in_order")
def in_order(x: N, y: N) -> N:
    return y[x.argsort()]


@opsmith.op("exact_ties::steep")
def steep(x: N, y: N) -> N:
    return 1 / (x - y)


def wrong(operator: opsmith.Operator, found: Tensor, **arguments: object) -> bool:
    return compare([found], expected_of(operator, arguments)).problem is not None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_an_argument_that_equals_a_threshold_is_on_the_side_that_the_reference_says(dtype):
    x = torch.tensor([1.0, 0.5, 2.0, 1.0, -1.0], dtype=dtype)
    other = torch.where(x > 1, 2 * x + 10, torch.zeros_like(x))
    assert not wrong(above, above.reference(x, 1.0), x=x, t=1.0)
    assert wrong(above, other, x=x, t=1.0)


def test_ranks_of_many_ties_are_counted():
    x = torch.randint(0, 3, (90,), generator=torch.Generator().manual_seed(0)).float()
    right = rank.reference(x)
    assert not wrong(rank, right, x=x)
    assert wrong(rank, right.clamp(max=right.median().item()), x=x)


@pytest.mark.parametrize("number", [0.1, 0.3, 1 / 3])
def test_a_tie_with_a_sum_that_is_rounded_may_break_either_way(number):
    x = torch.full((7,), number)
    for found in (torch.ones(7), torch.zeros(7)):
        assert not wrong(above_mean, found, x=x)


def test_a_number_between_two_steps_goes_to_the_even_one_where_the_quotient_is_exact():
    x = torch.tensor([0.25, 0.75, 1.25, -0.25, 3.0])
    away = torch.sign(x) * torch.floor(x.abs() / 0.5 + 0.5) * 0.5
    assert not wrong(rounded, rounded.reference(x, 0.5), x=x, step=0.5)
    assert wrong(rounded, away, x=x, step=0.5)
    x = torch.tensor([0.05, 0.15, 0.25, 0.35])  # no quotient by 0.1 is exact in binary
    away = torch.sign(x) * torch.floor(x.abs() * (1 / 0.1) + 0.5) * 0.1
    assert not wrong(rounded, away, x=x, step=0.1)


def test_what_a_sort_does_with_equal_keys_is_free():
    x = torch.tensor([1.0, 1.0, 0.0, 1.0])
    y = torch.tensor([5.0, 6.0, 7.0, 8.0])
    assert not wrong(in_order, torch.tensor([7.0, 8.0, 6.0, 5.0]), x=x, y=y)


def test_a_steep_slope_is_no_jump():
    x = torch.rand(50, generator=torch.Generator().manual_seed(1))
    y = x * (1 + 2.0**-20)
    found = 1 / (x - y)
    assert not wrong(steep, found * (1 + 1e-2 * torch.rand(50)), x=x, y=y)
    assert wrong(steep, found * 3, x=x, y=y)
