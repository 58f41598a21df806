"""`register_cost` turns the sizes of a call into what it has to move and compute."""

from __future__ import annotations

import pytest
import torch
from jaxtyping import Float, Int32
from torch import Tensor

import opsmith
from opsmith import DeclarationError


@opsmith.op("test_cost::pick")
def pick(
    x: Float[Tensor, "*batch C"], rows: Int32[Tensor, "K"], scale: float = 1.0
) -> Float[Tensor, "*batch C"]:
    """Only its shapes matter here."""
    return x * scale


CALL = {"x": torch.ones(2, 5, 3), "rows": torch.ones(4, dtype=torch.int32), "scale": 2.0}


@pytest.mark.parametrize(
    ("function", "cost"),
    [
        (lambda C, K: opsmith.Cost(C, K), opsmith.Cost(3, 4)),
        (lambda batch: opsmith.Cost(operations=sum(batch)), opsmith.Cost(None, 7)),
        (lambda x, itemsize: opsmith.Cost(x.numel() * itemsize), opsmith.Cost(120)),
        (lambda scale, rows: opsmith.Cost(int(scale) * rows.nbytes), opsmith.Cost(32)),
        (lambda: opsmith.Cost(1), opsmith.Cost(1)),
    ],
)
def test_a_cost_follows_from_dimensions_arguments_and_the_size_of_an_element(
    function, cost
) -> None:
    pick.register_cost(function)
    assert pick.cost(CALL) == cost


def test_the_size_of_an_element_is_that_of_the_call() -> None:
    pick.register_cost(lambda itemsize: opsmith.Cost(itemsize))
    assert pick.cost({**CALL, "x": CALL["x"].half()}) == opsmith.Cost(2)


def test_what_a_call_does_not_have_is_refused_when_it_is_registered() -> None:
    with pytest.raises(
        DeclarationError,
        match="test_cost::pick: register_cost: the function takes 'D', which is neither a "
        "dimension nor an argument; there are batch, C, K, x, rows, scale, itemsize",
    ):
        pick.register_cost(lambda D: opsmith.Cost(D))


def test_what_is_no_cost_is_refused() -> None:
    pick.register_cost(lambda C: 4 * C)
    with pytest.raises(DeclarationError, match=r"the function returned 12, expected opsmith\.Cost"):
        pick.cost(CALL)
    with pytest.raises(ValueError, match=r"Cost\(bytes=-1\): expected a count"):
        opsmith.Cost(-1)
