"""C++ compares sizes as a declaration's conditions say, and refuses in Python's words."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from jaxtyping import Float
from same_words import assert_same_words
from torch import Tensor

pytestmark = pytest.mark.slow  # one library; test_messages.py has one among the quick tests


def held(
    q: Float[Tensor, "T H D"],
    k: Float[Tensor, "M P K"],
    many: list[Float[Tensor, "L"]],
    window: int,
    pads: tuple[int, int],
) -> Float[Tensor, "T"]: ...


WHERE = (
    "D % 2 == 0",
    "H % K == 0",
    "T <= M*P",
    "0 < D <= 256",
    "L != 5",
    "{window} < T",
    "pads[0] + pads[1] >= window - 4",
)


@pytest.fixture(scope="module")
def operator(build):
    return build(held, where=WHERE)


def correct(**changed: Any) -> dict[str, Any]:
    arguments = {
        "q": torch.zeros(6, 4, 8),
        "k": torch.zeros(2, 3, 2),
        "many": [torch.zeros(4)],
        "window": 5,
        "pads": (0, 1),
    }
    return {**arguments, **changed}


def test_a_call_that_satisfies_every_condition_runs(operator) -> None:
    assert operator(**correct()).shape == (6,)


WRONG = {
    "an odd size": {"q": torch.zeros(6, 4, 7)},
    "no multiple": {"q": torch.zeros(6, 3, 8)},
    "a division by zero": {"k": torch.zeros(2, 3, 0)},
    "too large": {"q": torch.zeros(7, 4, 8)},
    "the first of a chain": {"q": torch.zeros(6, 4, 0)},
    "the last of a chain": {"q": torch.zeros(6, 4, 258)},
    "in a list": {"many": [torch.zeros(5)]},
    "a number": {"window": 6},
    "numbers alone": {"pads": (0, -7)},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_call_that_breaks_a_condition_has_the_same_words(operator, name: str) -> None:
    assert_same_words(operator, correct(**WRONG[name]))
