"""What values must be together is enforced in C++ as in Python, word for word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from jaxtyping import Float, Int32, Int64
from torch import Tensor

from opsmith.errors import ArgumentError
from opsmith.operators.core.validation import Validator
from opsmith.signature import Positive, Sorted, Starts, Total

pytestmark = pytest.mark.slow  # one library; test_messages.py has one among the quick tests


def constrained(
    x: Annotated[Float[Tensor, "N"], Sorted()],
    offsets: Annotated[Int32[Tensor, "B+1"], Sorted(first=0, last="N", strict=True)],
    ids: Annotated[Int64[Tensor, "B K"], Sorted(first=0)],
    lengths: Annotated[Int64[Tensor, "2 K"], Total("N")],
    starts: Annotated[Int64[Tensor, "2 K"], Starts(of="lengths")],
    shapes: Annotated[Int64[Tensor, "L 2"], Total("N", of="shapes")],
    level_start: Annotated[Int64[Tensor, "L"], Starts(of="shapes")],
    scale: Annotated[Float[Tensor, "_"], Positive()],
    splits: Annotated[Sequence[int], Total("N")],
    bins: Annotated[Sequence[float], Sorted(0.5, strict=True)],
    window: Annotated[tuple[int, int], Sorted(last="N")] | None,
    step: Annotated[float, Positive()],
    count: Annotated[int, Positive()],
) -> Float[Tensor, "N"]: ...


@pytest.fixture(scope="module")
def operator(build):
    return build(constrained)


def correct() -> dict[str, Any]:
    return {
        "x": torch.tensor([-1.0, 0.5, 0.5, 2.0, 3.0, float("inf")]),
        "offsets": torch.tensor([0, 1, 4, 6], dtype=torch.int32),
        "ids": torch.tensor([[0, 0, 7], [0, 1, 1], [0, 2, 9]]),
        "lengths": torch.tensor([[1, 0, 5], [2, 2, 2]]),
        "starts": torch.tensor([[0, 1, 1], [0, 2, 4]]),
        "shapes": torch.tensor([[1, 2], [4, 1], [7, 0]]),
        "level_start": torch.tensor([0, 2, 6]),
        "scale": torch.tensor([1e-3, 2.0]),
        "splits": [1, 2, 3],
        "bins": [0.5, 0.75, 2.0],
        "window": [1, 6],
        "step": 0.1,
        "count": 1,
    }


def both(operator: Any, **changed: Any) -> tuple[str | None, str | None]:
    arguments = {**correct(), **changed}
    said: list[str | None] = []
    validator = Validator(operator.signature)
    for call, kind in (
        (lambda: operator(**arguments), RuntimeError),
        (lambda: validator(arguments), ArgumentError),
    ):
        try:
            call()
            said.append(None)
        except kind as error:
            said.append(str(error))
    return said[0], said[1]


def test_correct_arguments_pass(operator) -> None:
    assert both(operator) == (None, None)
    assert both(operator, window=None) == (None, None)
    # As they lie in memory does not matter.
    assert both(operator, lengths=torch.tensor([[1, 2], [0, 2], [5, 2]]).t()) == (None, None)


I32 = torch.int32
BIG = 2**62
EMPTY = torch.zeros(2, 0, dtype=torch.int64)

# What is passed, and what is said of it.
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "out of order": (
        {"x": torch.tensor([0.0, 1.0, 3.0, 2.0, 4.0, 5.0])},
        "argument 'x' has value 2.0 at index 3 after 3.0 at index 2, expected sorted values.",
    ),
    "not a number": (
        {"x": torch.tensor([0.0, 1.0, float("nan"), 2.0, 4.0, 5.0])},
        "argument 'x' has value nan at index 2 after 1.0 at index 1, expected sorted values.",
    ),
    "a value twice": (
        {"offsets": torch.tensor([0, 4, 4, 6], dtype=I32)},
        "argument 'offsets' has value 4 at index 2 after 4 at index 1, expected strictly "
        "increasing values.",
    ),
    "first": (
        {"offsets": torch.tensor([1, 2, 4, 6], dtype=I32)},
        "argument 'offsets' has value 1 at index 0, expected 0 as the first value.",
    ),
    "last": (
        {"offsets": torch.tensor([0, 2, 4, 9], dtype=I32)},
        "argument 'offsets' has value 9 at index 3, expected 6 (N) as the last value.",
    ),
    "first of a row": (
        {"ids": torch.tensor([[0, 0, 7], [0, 1, 1], [3, 2, 9]])},
        "argument 'ids' has value 3 at index (2, 0), expected 0 as the first value.",
    ),
    "within a row": (
        {"ids": torch.tensor([[0, 0, 7], [0, 1, 1], [0, 9, 2]])},
        "argument 'ids' has value 2 at index (2, 2) after 9 at index (2, 1), expected sorted "
        "values.",
    ),
    "empty rows": (
        {"ids": EMPTY[0].expand(3, 0), "lengths": EMPTY, "starts": EMPTY},
        "argument 'ids' has no values, expected 0 as the first value.",
    ),
    "sum": (
        {"lengths": torch.tensor([[1, 0, 5], [2, 2, 3]])},
        "argument 'lengths' adds up to 7 in row 1, expected 6 (N).",
    ),
    "negative size": (
        {"lengths": torch.tensor([[1, 0, 5], [-2, 2, 6]])},
        "argument 'lengths' has value -2 at index (1, 0), expected 0 <= value.",
    ),
    "sum beyond 64 bits": (
        {"lengths": torch.tensor([[BIG, BIG, BIG], [2, 2, 2]])},
        "argument 'lengths' adds up to 9223372036854775807 in row 0, expected 6 (N).",
    ),
    "start": (
        {"starts": torch.tensor([[0, 1, 1], [0, 2, 5]])},
        "argument 'starts' has value 5 at index (1, 2), expected 4: the sum of 'lengths' before "
        "it.",
    ),
    "shapes": (
        {"shapes": torch.tensor([[1, 2], [4, 1], [3, 5]])},
        "argument 'shapes' has shapes of 21 elements together, expected 6 (N).",
    ),
    "two negative sizes": (
        {"shapes": torch.tensor([[1, 2], [-4, -1], [7, 0]])},
        "argument 'shapes' has value -4 at index (1, 0), expected 0 <= value.",
    ),
    "shapes beyond 64 bits": (
        {"shapes": torch.tensor([[BIG, 4], [6, 1], [7, 0]])},
        "argument 'shapes' has shapes of 9223372036854775807 elements together, expected 6 (N).",
    ),
    "start of a shape": (
        {"level_start": torch.tensor([0, 2, 7])},
        "argument 'level_start' has value 7 at index 2, expected 6: the elements of the shapes in "
        "'shapes' before it.",
    ),
    "not positive": (
        {"scale": torch.tensor([1.0, 0.0])},
        "argument 'scale' has value 0.0 at index 1, expected 0 < value.",
    ),
    "sum of a sequence": (
        {"splits": [1, 2, 4]},
        "argument 'splits' adds up to 7, expected 6 (N).",
    ),
    "negative in a sequence": (
        {"splits": [7, -1]},
        "argument 'splits[1]' is -1, expected 0 <= value.",
    ),
    "sequence out of order": (
        {"bins": [0.5, 0.25]},
        "argument 'bins' has value 0.25 at index 1 after 0.5 at index 0, expected strictly "
        "increasing values.",
    ),
    "first of a sequence": (
        {"bins": [0.25, 0.5]},
        "argument 'bins' has value 0.25 at index 0, expected 0.5 as the first value.",
    ),
    "empty sequence": (
        {"bins": []},
        "argument 'bins' has no values, expected 0.5 as the first value.",
    ),
    "last of a tuple": (
        {"window": [1, 7]},
        "argument 'window' has value 7 at index 1, expected 6 (N) as the last value.",
    ),
    "scalar": ({"step": 0.0}, "argument 'step' is 0.0, expected 0 < value."),
    "not a number as scalar": (
        {"step": float("nan")},
        "argument 'step' is nan, expected 0 < value.",
    ),
    "integer": ({"count": 0}, "argument 'count' is 0, expected 1 <= value."),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_said_in_the_same_words(operator, name: str) -> None:
    changed, said = WRONG[name]
    native, python = both(operator, **changed)
    assert native is not None
    assert native.splitlines()[0] == f"kernels_test::constrained: {said}"
    assert native == python


def test_a_long_line_is_scanned_in_pieces(operator) -> None:
    x = torch.arange(300_000.0)
    rest = {
        "offsets": torch.tensor([0, 300_000], dtype=I32),
        "ids": torch.zeros(1, 1, dtype=torch.int64),
        "lengths": torch.full((2, 1), 300_000),
        "starts": torch.zeros(2, 1, dtype=torch.int64),
        "shapes": torch.tensor([[300, 1000]]),
        "level_start": torch.tensor([0]),
        "splits": [300_000],
        "window": [1, 300_000],
    }
    assert both(operator, x=x, **rest) == (None, None)
    # Where one piece ends and the next begins, which no test of a piece by itself sees.
    x[65_536] = 0
    native, python = both(operator, x=x, **rest)
    assert native == python
    assert native is not None
    assert "value 0.0 at index 65536 after 65535.0 at index 65535" in native


@st.composite
def changes(draw: st.DrawFn) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    numbers = st.integers(-1, 7)
    for name in draw(st.lists(st.sampled_from(sorted(correct())), min_size=1, max_size=3)):
        value = correct()[name]
        if isinstance(value, Tensor):
            value = value.clone()
            for _ in range(draw(st.integers(1, 2))):
                place = draw(st.integers(0, value.numel() - 1))
                value.view(-1)[place] = draw(numbers)
            changed[name] = value
        elif isinstance(value, list):
            items = st.floats(-1, 7, width=16) if name == "bins" else numbers
            length = 2 if name == "window" else draw(st.integers(0, 4))
            changed[name] = draw(st.lists(items, min_size=length, max_size=length))
        else:
            changed[name] = type(value)(draw(numbers))
    return changed


@settings(max_examples=300)
@given(changed=changes())
def test_cpp_and_python_agree_on_anything(operator, changed: dict[str, Any]) -> None:
    native, python = both(operator, **changed)
    assert native == python
