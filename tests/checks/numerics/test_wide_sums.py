"""A sum in half precision is wrong where the reference adds in float, and right where it does not.

Each kernel here adds the terms of a row in the dtype that they are given in.
"""

import pytest
import torch
from comparing import outcome
from jaxtyping import Float
from torch import Tensor

import opsmith


def one_by_one(terms: Tensor) -> Tensor:
    total = torch.zeros_like(terms[:, 0])
    for term in terms.unbind(1):
        total = total + term
    return total


def in_lanes(terms: Tensor) -> Tensor:
    lanes = torch.nn.functional.pad(terms, (0, -terms.shape[1] % 8)).unflatten(1, (-1, 8)).mT
    return one_by_one(one_by_one(lanes.flatten(0, 1)).view(-1, 8))


def pairwise(terms: Tensor) -> Tensor:
    while terms.shape[1] > 1:
        terms = torch.nn.functional.pad(terms, (0, terms.shape[1] % 2))
        terms = terms[:, ::2] + terms[:, 1::2]
    return terms[:, 0]


WAYS = [one_by_one, in_lanes, pairwise]


def summed(x: Float[Tensor, "R C"]) -> Float[Tensor, "R"]:
    return x.float().sum(1).to(x.dtype)


def averaged(x: Float[Tensor, "R C"]) -> Float[Tensor, "R"]:
    return x.mean(1, dtype=torch.float32).to(x.dtype)


def dot(x: Float[Tensor, "R C"], y: Float[Tensor, "R C"]) -> Float[Tensor, "R"]:
    return (x.float() * y.float()).sum(1).to(x.dtype)


def product(x: Float[Tensor, "R C"], y: Float[Tensor, "C"]) -> Float[Tensor, "R"]:
    return (x.float() @ y.float()).to(x.dtype)


def norm(x: Float[Tensor, "R C"]) -> Float[Tensor, "R"]:
    return x.float().square().sum(1).sqrt().to(x.dtype)


def weights(x: Float[Tensor, "R C"]) -> Float[Tensor, "R C"]:
    return x.float().softmax(1).to(x.dtype)


def added_in_half(x: Float[Tensor, "R C"]) -> Float[Tensor, "R"]:
    return one_by_one(x) * torch.ones((), dtype=torch.float32)


HALVES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
ADDED = pytest.mark.parametrize("added", WAYS, ids=lambda way: way.__name__)
OPERATORS = {
    one: opsmith.op(f"wide_sums::{one.__name__}")(one)
    for one in (summed, averaged, dot, product, norm, weights, added_in_half)
}


def rows(dtype: torch.dtype, columns: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(60, columns, generator=generator).to(dtype)


def said(reference, result, **arguments):
    found = outcome(OPERATORS[reference], result, **arguments)
    return found.problem or "", found.code


@HALVES
@ADDED
@pytest.mark.parametrize("columns", [17, 300])
def test_a_sum_of_terms_that_cancel_is_told_as_added_in_half(dtype, added, columns):
    x = rows(dtype, columns, 0)
    problem, code = said(summed, added(x), x=x)
    assert code == "OPS-VALUE-ACCUMULATION"
    name = str(dtype).removeprefix("torch.")
    assert f"; a sum is accumulated in {name}, and the reference asks for float32" in problem


@HALVES
def test_a_long_sum_of_rounded_terms_is_told_as_added_in_half(dtype):
    x, y = rows(dtype, 1500, 1), rows(dtype, 1500, 2)
    assert said(dot, one_by_one(x * y), x=x, y=y)[1] == "OPS-VALUE-ACCUMULATION"
    assert said(product, one_by_one(x * y[0]), x=x, y=y[0])[1] == "OPS-VALUE-ACCUMULATION"
    assert said(averaged, one_by_one(x) / 1500, x=x)[1] == "OPS-VALUE-ACCUMULATION"
    assert said(norm, one_by_one(x * x).float().sqrt().to(dtype), x=x)[1]
    shifted = x.float() - x.float().amax(1, keepdim=True)
    e = shifted.exp()
    assert said(weights, (e / one_by_one(e.to(dtype))[:, None].float()).to(dtype), x=x)[1]


@HALVES
@ADDED
def test_a_sum_in_float_of_terms_in_half_is_right(dtype, added):
    for seed in range(10):
        columns = 5 + 40 * seed
        x, y = rows(dtype, columns, seed), rows(dtype, columns, seed + 10)
        assert said(summed, added(x.float()).to(dtype), x=x) == ("", "")
        # A result may be off by one unit in the last place.
        near = added(x.float()).to(dtype)
        near = torch.nextafter(near, torch.full_like(near, torch.inf))
        assert said(summed, near, x=x) == ("", "")
        assert said(averaged, (added(x.float()) / columns).to(dtype), x=x) == ("", "")
        # Products, and the sum that is divided, may be rounded to half.
        assert said(dot, added((x * y).float()).to(dtype), x=x, y=y) == ("", "")
        assert said(product, added((x * y[0]).float()).to(dtype), x=x, y=y[0]) == ("", "")
        assert said(norm, added((x * x).float()).to(dtype).sqrt(), x=x) == ("", "")
        e = (x.float() - x.float().amax(1, keepdim=True)).exp().to(dtype)
        assert said(weights, e / added(e.float()).to(dtype)[:, None], x=x) == ("", "")


@HALVES
def test_a_kernel_may_add_in_half_as_the_reference_does(dtype):
    for seed in range(10):
        x = rows(dtype, 10 + 20 * seed, seed)
        for added in WAYS:
            assert said(added_in_half, added(x), x=x) == ("", "")
