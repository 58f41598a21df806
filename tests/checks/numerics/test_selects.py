"""An index is right if it selects a right value; sorted results are sorted, the reference's too."""

from __future__ import annotations

from typing import Annotated

import pytest
import torch
from comparing import random
from jaxtyping import Float, Int32, Int64
from torch import Tensor

import opsmith
from opsmith import NonDifferentiable, Selects, Sorted, checks
from opsmith.checks.numerics.comparison import compare
from opsmith.checks.numerics.oracle import expected_of
from opsmith.checks.numerics.ties import Ties

pytestmark = pytest.mark.slow


def problem(operator, results, **arguments):
    return compare(results, expected_of(operator, arguments)).problem


def squares(a, b):
    return (a[:, None] - b).square().sum(-1)


@opsmith.op("selects::largest", parallel_dims=("N",))
def largest(x: Float[Tensor, "N C"]) -> Annotated[Int64[Tensor, "N"], Selects("x")]:
    if not x.shape[1]:
        raise ValueError("expected a value")
    return x.argmax(1)


@opsmith.op("selects::nearest")
def nearest(
    a: Float[Tensor, "N 3"], b: Float[Tensor, "M 3"]
) -> Annotated[Int32[Tensor, "3 N"], Selects(lambda a, b: squares(a, b).t(), dim=0)]:
    return squares(a, b).topk(3, largest=False).indices.int().t()


Nearest = Annotated[Int64[Tensor, "N"], Selects("out0")]


@opsmith.op("selects::both")
def both(
    a: Float[Tensor, "N 3"], b: Float[Tensor, "M 3"]
) -> tuple[Float[Tensor, "N M"], Nearest, Float[Tensor, "N"]]:
    """Distances, the nearest of each, and the product of its coordinates."""
    found = squares(a, b)
    index = found.argmin(1)
    return found, index, b[index].prod(1)


def test_of_equal_values_of_an_argument_each_may_be_selected_and_no_other():
    x = torch.tensor([[1.0, 2.0, 2.0], [3.0, 3.0 + 2**-22, 0.0]])
    assert problem(largest, [torch.tensor([2, 1])], x=x) is None
    assert problem(largest, [torch.tensor([1, 1])], x=x) is None
    # The value of an argument is what it is, however near another one is.
    wrong = problem(largest, [torch.tensor([1, 0])], x=x)
    assert wrong == "the result[1] is 0, expected 1 (int64); 1 of 2 elements are wrong"
    assert "is 3, expected 1" in str(problem(largest, [torch.tensor([3, 1])], x=x))
    assert "is -1, expected 1" in str(problem(largest, [torch.tensor([-1, 1])], x=x))


def test_nan_is_as_good_as_another_nan():
    x = torch.tensor([[1.0, torch.nan, torch.nan]])
    assert problem(largest, [torch.tensor([2])], x=x) is None
    assert problem(largest, [torch.tensor([0])], x=x) is not None


def test_of_computed_values_those_within_rounding_may_be_selected():
    a = torch.zeros(1, 3)
    b = torch.eye(3).repeat(2, 1) * torch.tensor([1.0, 1 + 2**-23, 1, 1, 1.01, 1])[:, None]
    for order in ([0, 1, 2], [5, 3, 2], [3, 5, 1]):
        assert problem(nearest, [torch.tensor(order).int()[:, None]], a=a, b=b) is None
    wrong = problem(nearest, [torch.tensor([0, 1, 4]).int()[:, None]], a=a, b=b)
    assert wrong is not None and wrong.startswith("the result[2, 0] is 4, expected ")


def test_one_of_equal_neighbours_is_not_selected_twice():
    a, b = torch.zeros(1, 3), torch.eye(3).repeat(2, 1)
    wrong = str(problem(nearest, [torch.tensor([0, 0, 0]).int()[:, None]], a=a, b=b))
    assert wrong.endswith("3 of 3 elements are wrong; an index stands twice in its row")
    assert problem(nearest, [torch.tensor([4, 0, 3]).int()[:, None]], a=a, b=b) is None


def test_further_results_are_compared_with_those_of_the_selected_index():
    a = torch.zeros(1, 3)
    b = torch.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, -1.0]])
    found = squares(a, b)
    for index, product in ((0, 6.0), (1, -6.0)):
        chosen = torch.tensor([index])
        assert problem(both, [found, chosen, torch.tensor([product])], a=a, b=b) is None
        wrong = problem(both, [found, chosen, torch.tensor([-product])], a=a, b=b)
        assert str(wrong).startswith(f"out2[0] is {-product:g}, expected {product:g}")


def test_choices_are_looked_for_only_where_a_little_would_change_them(monkeypatch):
    a, b = torch.zeros(1, 3), torch.tensor([[1.0, 2.0, 3.0], [4.0, 2.0, -1.0]])
    results = [squares(a, b), torch.tensor([0]), torch.tensor([6.0])]
    far = expected_of(both, {"a": a, "b": b})
    b = torch.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, -1.0]])
    near = expected_of(both, {"a": a, "b": b})
    assert far.steady and not near.steady
    looked = []
    monkeypatch.setattr(Ties, "making", lambda *_: looked.append(1) or iter(()))
    assert compare(results, far).problem is None
    assert not looked
    # One result is off by more than the measured tolerance: rounding might explain it.
    assert compare([*results[:2], torch.tensor([6.1])], far).problem is not None
    assert looked
    looked.clear()
    assert compare([squares(a, b), torch.tensor([0]), torch.tensor([6.0])], near).problem is None
    assert looked


def test_in_half_precision_what_rounds_to_infinity_is_equally_far():
    b = random(5, 3, dtype=torch.float16) + torch.tensor([300.0, 0, 0]).half()
    a = torch.full((1, 3), -300.0, dtype=torch.float16)
    assert problem(nearest, [torch.tensor([4, 1, 2]).int()[:, None]], a=a, b=b) is None
    b[3] = a[0]
    assert problem(nearest, [torch.tensor([4, 1, 2]).int()[:, None]], a=a, b=b) is not None


def test_slices_and_large_calls_are_compared_by_value_too():
    largest.register_kernel("cpu", lambda x: x.shape[1] - 1 - x.flip(1).argmax(1))
    select = ["parallel-dims", "reference", "vmap"]
    report = checks.run(largest, select=select, isolate=False, examples=20)
    assert report.ok, report.explain()
    largest.register_kernel("cpu", lambda x: (-x).argmax(1))
    for row in select:
        report = checks.run(largest, select=[row], isolate=False, examples=20)
        assert [one.status for one in report.rows] == ["failed"]


def test_values_that_do_not_fit_the_index_are_named():
    @opsmith.op("selects::flat")
    def flat(x: Float[Tensor, "N C"]) -> Annotated[Int64[Tensor, ""], Selects(squares_of)]:
        return x.argmax()

    x = torch.ones(2, 3)
    assert problem(flat, [torch.tensor(0)], x=x) is None  # as the reference has it
    assert problem(flat, [torch.tensor(5)], x=x) == (
        "the result: Selects(squares_of) gives values of shape (2, 3) for an index of shape (): "
        "expected the same dimensions except dim=-1, which the index may have in any size, or lack"
    )


def squares_of(x):
    return x.square()


@opsmith.op("selects::ordered")
def ordered(
    x: Float[Tensor, "N C"], falls: int = 0
) -> Annotated[Float[Tensor, "N C"], Sorted(), NonDifferentiable()]:
    return x.sort(1, descending=bool(falls)).values


@pytest.mark.parametrize("falls", [0, 1])
def test_a_sorted_result_is_required_of_kernel_and_reference(falls):
    x = torch.tensor([[1.0, 1.0 + 2**-23, 4.0]])
    swapped = x[:, [1, 0, 2]]  # within rounding
    found = problem(ordered, [x if falls else swapped], x=x, falls=falls)
    if falls:
        assert found == (
            "the reference itself breaks the declaration: the result[0, 1] is "
            "1.0000001192092896 after 4.0, expected sorted values"
        )
    else:
        assert found == "the result[0, 1] is 1.0 after 1.0000001192092896, expected sorted values"
        assert problem(ordered, [x], x=x, falls=0) is None


def test_the_ends_of_a_sorted_result_are_required():
    @opsmith.op("selects::offsets")
    def offsets(
        lengths: Int64[Tensor, "N"], k: int
    ) -> Annotated[Int64[Tensor, "N+1"], Sorted(first=0, last="{k}", strict=True)]:
        return torch.nn.functional.pad(lengths.cumsum(0), (1, 0))

    lengths = torch.tensor([2, 3])
    assert problem(offsets, [torch.tensor([0, 2, 5])], lengths=lengths, k=5) is None
    assert problem(offsets, [torch.tensor([0, 2, 5])], lengths=lengths, k=6) == (
        "the reference itself breaks the declaration: the result[2] is 5, expected 6 as the last "
        "value"
    )
    wrong = problem(offsets, [torch.tensor([0, 0, 5])], lengths=lengths, k=5)
    assert wrong == "the result[1] is 0 after 0, expected strictly increasing values"
