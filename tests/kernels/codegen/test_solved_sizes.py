"""C++ solves a size for its unknown as Python does, and says the same where it cannot."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from jaxtyping import Float, Int64
from same_words import assert_same_words
from torch import Tensor

pytestmark = pytest.mark.slow  # one library; test_messages.py has one among the quick tests


def solved(
    halves: Float[Tensor, "*batch 2*C"],
    heads: Float[Tensor, "K*G 9-K"],
    keys: Float[Tensor, "_ K"],
    offsets: Int64[Tensor, "R+1"],
    wide: Float[Tensor, "{count}*D+1"],
    more: Float[Tensor, "E-C"] | None,
    many: list[Float[Tensor, "2*C-1"]],
    count: int,
) -> Int64[Tensor, "5"]: ...


@pytest.fixture(scope="module")
def operator(build):
    return build(solved)


def correct(**changed: Any) -> dict[str, Any]:
    arguments = {
        "halves": torch.zeros(2, 8),
        "heads": torch.zeros(6, 6),
        "keys": torch.zeros(1, 3),
        "offsets": torch.zeros(6, dtype=torch.int64),
        "wide": torch.zeros(13),
        "more": torch.zeros(1),
        "many": [torch.zeros(7)],
        "count": 4,
    }
    return {**arguments, **changed}


def test_a_kernel_receives_the_sizes_that_were_solved(operator) -> None:
    assert operator(**correct()).tolist() == [4, 2, 5, 3, 5]
    assert operator(**correct(more=None, many=[])).tolist() == [4, 2, 5, 3, -1]


WRONG = {
    "odd": {"halves": torch.zeros(2, 7), "many": []},
    "no multiple": {"heads": torch.zeros(7, 6)},
    "no multiple of a scalar": {"wide": torch.zeros(14)},
    "nothing times a scalar": {"count": 0},
    "anything times a scalar": {"count": 0, "wide": torch.zeros(1)},
    "negative": {"offsets": torch.zeros(0, dtype=torch.int64)},
    "negative of a negative factor": {"wide": torch.zeros(5), "count": -4},
    "bound before": {"heads": torch.zeros(6, 5)},
    "in a list": {"many": [torch.zeros(7), torch.zeros(8)]},
    "times zero": {"keys": torch.zeros(1, 0), "heads": torch.zeros(0, 9)},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_size_without_a_solution_has_the_same_words(operator, name: str) -> None:
    assert_same_words(operator, correct(**WRONG[name]))
