"""A number that is no int is refused for an int, whatever library made it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import ArgumentError


@opsmith.op("cut_to_ints::shifted")
def shifted(
    x: Float[Tensor, "N"], k: int, ks: Sequence[int] = (), *, last: int | None = None
) -> Float[Tensor, "N"]:
    """`x`, and the ints added to it."""
    return x + k + sum(ks) + (last or 0)


X = torch.zeros(1)
CUT: dict[str, Any] = {
    "np.float32(1.5)": np.float32(1.5),
    "np.float32(2.0)": np.float32(2.0),
    "np.float64(2.5)": np.float64(2.5),
    "np.float16(1.5)": np.float16(1.5),
    "np.array(2.7)": np.array(2.7),
    "torch.tensor(2.7)": torch.tensor(2.7),
    "torch.tensor([2.7])": torch.tensor([2.7]),
    "torch.tensor(2j)": torch.tensor(2j),
    "1.5": 1.5,
}


@pytest.mark.parametrize("name", CUT)
def test_a_number_that_is_no_int_is_not_cut_to_one(name: str) -> None:
    value = CUT[name]
    for place, call in (
        ("k", lambda: shifted(X, value)),
        ("k", lambda: shifted(x=X, k=value)),
        (r"ks\[1\]", lambda: shifted(X, 1, [2, value])),
        ("last", lambda: shifted(X, 1, last=value)),
    ):
        with pytest.raises(
            ArgumentError, match=f"^cut_to_ints::shifted: argument '{place}' is .*int"
        ):
            call()


def test_the_words_say_what_came() -> None:
    with pytest.raises(ArgumentError) as caught:
        shifted(X, torch.tensor(2.7))
    assert str(caught.value) == (
        "cut_to_ints::shifted: argument 'k' is a tensor of dtype float32, expected int."
    )


def test_ints_of_other_libraries_are_ints() -> None:
    for value in (2, np.int64(2), np.uint8(2), np.array(2), torch.tensor(2), torch.tensor([2])):
        assert shifted(X, value, [value], last=value).tolist() == [6]
    assert shifted(X, True).tolist() == [1]


def test_graphs_with_ints_are_compiled_whole() -> None:
    compiled = torch.compile(
        lambda x, k: shifted(x, k, [k, x.shape[0]], last=k), backend="aot_eager", fullgraph=True
    )
    for k in (1, 2, 3):
        assert compiled(X, k).tolist() == [3 * k + 1]
