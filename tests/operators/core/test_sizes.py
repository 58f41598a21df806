"""Sizes that a declaration lets follow from others: what calls and traces make of them."""

from __future__ import annotations

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith


@opsmith.op("sizes_test::swiglu", autograd="reference")
def swiglu(x: Float[Tensor, "B 2*C"]) -> Float[Tensor, "B C"]:
    a, b = x.chunk(2, dim=1)
    return torch.nn.functional.silu(a) * b


class Model(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def exported(function, *args):
    dynamic = torch.export.Dim.DYNAMIC
    shapes = tuple(dict.fromkeys(range(arg.dim()), dynamic) for arg in args)
    return torch.export.export(Model(function), args, dynamic_shapes=(shapes,)).module()


def test_an_odd_size_is_refused() -> None:
    assert swiglu(torch.ones(3, 8)).shape == (3, 4)
    with pytest.raises(opsmith.ArgumentError, match="expected 2\\*C for some C: a multiple of 2"):
        swiglu(torch.ones(3, 7))


def test_an_export_solves_sizes_that_change() -> None:
    model = exported(swiglu, torch.ones(3, 10))
    x = torch.randn(5, 12)
    assert torch.equal(model(x), swiglu(x))
    with pytest.raises(AssertionError, match="% 2 == 0"):
        model(torch.ones(5, 13))


@opsmith.op("sizes_test::attend", where=("H % K == 0", "T <= M*P", "low <= T"))
def attend(
    q: Float[Tensor, "T H"], pages: Float[Tensor, "M P K"], low: int = 0
) -> Float[Tensor, "T H//K"]:
    keys = pages.flatten(0, 1)[: q.shape[0]]
    return q.unflatten(1, (keys.shape[1], -1)).sum(1) + keys.sum(1, keepdim=True) + low


def test_an_export_under_conditions_keeps_its_sizes_dynamic() -> None:
    model = exported(attend, torch.ones(6, 10), torch.ones(2, 4, 5))
    q, pages = torch.randn(7, 9), torch.randn(3, 5, 3)
    assert torch.equal(model(q, pages), attend(q, pages))
    for shape in ((7, 10), (16, 9)):
        with pytest.raises(AssertionError, match="Guard failed"):
            model(torch.ones(shape), pages)


def test_a_trace_refuses_what_breaks_a_condition() -> None:
    with pytest.raises(Exception, match="do not satisfy T <= M\\*P: 9 <= 8 is false"):
        torch.export.export(Model(attend), (torch.ones(9, 10), torch.ones(2, 4, 5)))


def test_a_default_number_is_compared_too() -> None:
    assert attend(torch.ones(6, 10), torch.ones(2, 4, 5)).shape == (6, 2)
    with pytest.raises(opsmith.ArgumentError, match="do not satisfy low <= T: 7 <= 6 is false"):
        attend(torch.ones(6, 10), torch.ones(2, 4, 5), low=7)


def test_a_batch_does_not_hide_a_broken_condition() -> None:
    @opsmith.op("sizes_test::short", parallel_dims=("N",), where=("N <= 4",))
    def short(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x * 2

    x = torch.ones(3, 4)
    assert torch.equal(torch.vmap(short)(x), x * 2)
    with pytest.raises(opsmith.ArgumentError, match="do not satisfy N <= 4"):
        torch.vmap(short)(torch.ones(2, 5))


def test_conditions_are_part_of_what_a_declaration_says() -> None:
    def f(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x * 2

    plain = opsmith.op("sizes_test::plain", f).signature
    held = opsmith.op("sizes_test::plain", f, where=("N <= 4",)).signature
    assert plain.facts() != held.facts()
