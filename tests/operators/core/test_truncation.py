"""A number that is no int, or complex, is refused for an int or a float, whatever made it."""

from __future__ import annotations

import math
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


@opsmith.op("cut_to_floats::scaled")
def scaled(
    x: Float[Tensor, "N"], k: float, ks: Sequence[float] = (), *, last: float | None = None
) -> Float[Tensor, "N"]:
    """`x`, times the floats."""
    return x * k * math.prod(ks) * (1 if last is None else last)


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


@pytest.mark.parametrize("complex_type", [complex, np.complex64, np.complex128, np.clongdouble])
def test_no_imaginary_part_is_lost(complex_type: Any) -> None:
    value = complex_type(1 + 2j)
    for place, call in (
        ("k", lambda: scaled(X, value)),
        ("k", lambda: scaled(x=X, k=value)),
        (r"ks\[1\]", lambda: scaled(X, 1.0, [2.0, value])),
        ("last", lambda: scaled(X, 1.0, last=value)),
    ):
        said = f"^cut_to_floats::scaled: argument '{place}' is .*(complex|clongdouble).*float"
        with pytest.raises(ArgumentError, match=said):
            call()


def test_floats_of_other_libraries_are_floats() -> None:
    one = torch.ones(1)
    for value in (2, 2.0, np.float16(2), np.longdouble(2), np.int8(2), np.array(2.0)):
        assert scaled(one, value, [value], last=value).tolist() == [8]
    assert scaled(one, True, (), last=torch.tensor(2.0)).tolist() == [2]


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
