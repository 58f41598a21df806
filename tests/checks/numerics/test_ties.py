"""If rounding decides between two values, either is right, and no third value."""

from fractions import Fraction

import pytest
import torch
from comparing import outcome, random
from jaxtyping import Float, Int32, Int64
from torch import Tensor

import opsmith

pytestmark = pytest.mark.slow(cases=2)


def squares(a, b):
    return (a[:, None] - b[None]).square().sum(-1)


@opsmith.op("ties::three_nearest")
def three_nearest(a: Float[Tensor, "N 3"], b: Float[Tensor, "M 3"]) -> Int32[Tensor, "N 3"]:
    return squares(a, b).topk(3, largest=False).indices.int()


@opsmith.op("ties::closest")
def closest(a: Float[Tensor, "N 3"], b: Float[Tensor, "M 3"]) -> Int64[Tensor, "N"]:
    return squares(a, b).argmin(-1)


@opsmith.op("ties::neighbours")
def neighbours(a: Float[Tensor, "N 3"], b: Float[Tensor, "M 3"]) -> Int64[Tensor, "5 N"]:
    """By another formula, cut off and turned, as mmcv's knn has them."""
    found = (a * a).sum(1)[:, None] - 2 * a @ b.t() + (b * b).sum(1)
    return found.sort(dim=1, stable=True).indices[:, :5].t()


def contracted(a, b):
    """Squared distances, where each product is rounded together with the sum that it goes into."""
    total = torch.zeros(a.shape[0], b.shape[0], dtype=a.dtype)
    for one, other in zip(a.unbind(1), b.unbind(1), strict=True):
        off = one[:, None] - other[None]
        if a.dtype == torch.float64:
            pairs = zip(off.flatten().tolist(), total.flatten().tolist(), strict=True)
            found = [float(Fraction(x) ** 2 + Fraction(y)) for x, y in pairs]
            total = torch.tensor(found, dtype=a.dtype).view(total.shape)
        else:  # exact in twice as many digits
            total = (off.double() ** 2 + total.double()).to(a.dtype)
    return total


def lattice(dtype, size=5):
    """Points of a lattice, each of which has 26 others beside it, six of them equally near."""
    steps = 0.1 * torch.arange(size, dtype=dtype)
    return torch.cartesian_prod(steps, steps, steps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("off", [0.0, 0.05])
def test_of_equal_distances_each_is_right_that_a_contracted_sum_makes_shorter(dtype, off):
    b = lattice(dtype)
    a = b[::5] + off
    order = contracted(a, b).sort(dim=1, stable=True).indices
    assert not torch.equal(order, squares(a, b).sort(dim=1, stable=True).indices)
    assert outcome(three_nearest, order[:, :3].int(), a=a, b=b).problem is None
    assert outcome(closest, order[:, 0], a=a, b=b).problem is None
    assert outcome(neighbours, order[:, :5].t(), a=a, b=b).problem is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_further_than_rounding_carries_is_wrong_beside_ties(dtype):
    b = lattice(dtype)
    a = b[::5] + 0.05
    order = contracted(a, b).sort(dim=1, stable=True).indices
    # Eight points are nearest to one amid them.
    found = order[:, :3].int()
    found[0, 2] = order[0, 8]
    problem = outcome(three_nearest, found, a=a, b=b).problem
    assert "1 of 75 elements are wrong" in problem
    assert f"[0, 2] is {order[0, 8]}" in problem
    found = order[:, 0].clone()
    found[0] = order[0, 8]
    assert "1 of 25 elements are wrong" in outcome(closest, found, a=a, b=b).problem


def test_the_shortest_of_many_equal_distances_may_be_any_of_them():
    # On a sphere, where each is the shortest in one of 48 runs.
    signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 3)
    lengths = torch.tensor([0.1, 0.3, 0.7])
    orders = torch.tensor([[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]])
    b = (signs[:, None] * lengths[orders]).flatten(0, 1)
    a = torch.zeros(48, 3)
    assert outcome(closest, torch.arange(48), a=a, b=b).problem is None
    far = torch.cat([b, torch.tensor([[0.1, 0.3, 0.70001]])])
    found = torch.arange(48)
    found[5] = 48
    assert "1 of 48 elements are wrong" in outcome(closest, found, a=a, b=far).problem


def test_neighbours_by_distances_in_bfloat16_are_wrong():
    a, b = random(200, 3), random(300, 3, seed=1)
    exact, coarse = (
        found.sort(dim=1, stable=True).indices[:, :3].int()
        for found in (squares(a, b), squares(a, b).bfloat16())
    )
    wrong = int((exact != coarse).sum())
    assert wrong > 2
    assert f"{wrong} of 600 elements are wrong" in outcome(three_nearest, coarse, a=a, b=b).problem


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_of_equal_numbers_that_no_step_rounds_only_the_references_is_right(dtype):
    a = torch.tensor([[0.0, 0.0, 0.0]], dtype=dtype)
    b = torch.tensor([[1.0, 2.0, 2.0], [2.0, 1.0, 2.0], [0.0, 3.0, 0.0]], dtype=dtype)
    assert outcome(closest, torch.tensor([0]), a=a, b=b).problem is None
    for wrong in (1, 2):
        assert outcome(closest, torch.tensor([wrong]), a=a, b=b).problem is not None


@opsmith.op("ties::walk")
def walk(x: Float[Tensor, "N 3"]) -> Int64[Tensor, ""]:
    """The last of three points, each of which is the furthest from those before it."""
    place, far = torch.tensor(0), torch.full((x.shape[0],), torch.inf, dtype=x.dtype)
    for _ in range(3):
        far = torch.minimum(far, squares(x[place][None], x)[0])
        place = far.argmax()
    return place


def test_a_choice_that_follows_from_an_earlier_one_is_not_free():
    # Two points are equally far from the first, and the third point follows from which is second.
    x = torch.tensor([[0.0, 0.0, 0.0], [0.1, 0.3, 0.7], [0.3, 0.1, -0.7], [0.05, 0.2, 0.1]])
    found = {int(place) for place in range(4) if _is_right(walk, place, x)}
    assert 0 not in found
    assert found < {1, 2, 3}


def _is_right(operator, place, x):
    return outcome(operator, torch.tensor(place), x=x).problem is None


def test_of_distances_that_are_too_large_none_is_the_shortest():
    a, b = random(3, 3) * 1e20, random(7, 3, seed=1) * 1e20
    b[4:] = a
    order = squares(a, b).sort(dim=1, stable=True).indices[:, :5]
    assert order[0].tolist() == [4, 0, 1, 2, 3]
    assert outcome(neighbours, order.t(), a=a, b=b).problem is None
    assert outcome(neighbours, order.t() + 7, a=a, b=b).problem is not None
