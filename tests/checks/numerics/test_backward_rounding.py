"""What a declared backward loses by rounding is allowed, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith.checks.numerics.comparison import compare
from opsmith.checks.numerics.gradients import expected_gradients, rounding_of
from opsmith.checks.numerics.oracle import expected_of
from opsmith.checks.numerics.rounding import RandomRounding

Formula = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
Numbers = Float[Tensor, "N"]


def further(a: Numbers, b: Numbers) -> Numbers:
    """Return the cost of a path that has one way on, as each cell at the edge of an alignment."""
    return a + b


def share(grad: Numbers, a: Numbers, b: Numbers, result: Numbers) -> Numbers:
    """Return the gradient by the share of that way, which is 1, from a result that was rounded."""
    return grad * (result - a - b).exp()


def larger_share(grad: Numbers, a: Numbers, b: Numbers, result: Numbers) -> Numbers:
    return 1.1 * share(grad, a, b, result)


@pytest.fixture(params=[torch.float32, torch.float64], ids=["single", "double"])
def costs(request: pytest.FixtureRequest) -> tuple[Tensor, Tensor]:
    """Costs of which the second is rounded by thousands of times its own last digit."""
    generator = torch.Generator().manual_seed(0)
    a, b = torch.rand(2, 12, generator=generator, dtype=torch.float64)
    return (1e5 * a).to(request.param), b.to(request.param)


def error(costs: tuple[Tensor, Tensor], formula: Formula, given: Formula) -> float:
    """The error of a backward that computes by `given`, where `formula` is the declared one."""
    name = f"declared_backward::{formula.__name__}"
    operator = opsmith.op(f"{name}_of")(further)
    backward = opsmith.op(name)(formula)
    operator.register_backward(backward, grads={"a": 0, "b": 0})
    grad = torch.linspace(-1, 1, 12).to(costs[0].dtype)
    truth = expected_gradients(operator, dict(zip("ab", costs, strict=True)), [grad])
    assert truth is not None
    found = given(grad, *costs, further(*costs))
    return compare([found, found], truth).error


def test_a_backward_may_lose_what_its_formula_loses_by_rounding(costs) -> None:
    a, b = costs
    lost = (share(torch.ones_like(a), a, b, a + b) - 1).abs().max()
    assert lost > 1000 * torch.finfo(a.dtype).eps  # the reference loses nothing
    assert error(costs, share, share) <= 1


def test_a_backward_that_is_wrong_is_found_beside_it(costs) -> None:
    assert error(costs, share, lambda grad, a, b, result: 0 * grad) > 1
    assert error(costs, share, larger_share) > 1


def test_a_declared_formula_that_is_wrong_excuses_nothing(costs) -> None:
    assert error(costs, larger_share, larger_share) > 1
    assert error(costs, larger_share, share) > 1


def twice_the_same(given: Mapping[str, Tensor]) -> list[Tensor]:
    return [given["a"] * given["b"] - given["a"] * given["b"]]


@pytest.mark.parametrize("by_steps", [False, True])
def test_terms_that_cancel_in_one_order_may_leave_their_rounding_in_another(by_steps) -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = torch.rand(2, 100, generator=generator)
    errors, right = rounding_of(twice_the_same, by_steps=by_steps), [torch.zeros(100).double()]
    mode = RandomRounding(torch.float32, generator)
    (rough,), (fine,) = errors({"a": a, "b": b}, right, mode)
    assert not bool(fine.any())
    assert bool(rough.any()) == by_steps
    assert rough.abs().max() <= 2 * torch.finfo(torch.float32).eps


def less_a_third(a: Numbers, b: Numbers) -> Numbers:
    return a - a / 3 + b


def test_what_several_calls_add_up_may_lose_as_much_more_as_its_summands_are_larger(costs) -> None:
    operator = opsmith.op("declared_backward::less_a_third")(less_a_third)
    truth = expected_of(operator, dict(zip("ab", costs, strict=True)))
    wide = replace(truth, shared_sums=3.0)
    (alone, _), (shared, _) = ([*one.rounding(0)][-1] for one in (truth, wide))
    assert bool(alone.any())
    torch.testing.assert_close(shared, 3 * alone)
