"""The C++ validation says what the Python validation says, word for word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import pytest
import torch
from hypothesis import example, given, settings, strategies as st
from jaxtyping import Float, Int32, Int64
from torch import Tensor

from opsmith.errors import ArgumentError
from opsmith.operators.core.validation import Validator
from opsmith.signature import Between, Extent, Index, Sorted


def bound(
    x: Float[Tensor, "*batch N K"],
    y: Float[Tensor, "*batch K+1"] | None,
    indices: Annotated[Int64[Tensor, "N 2"], Index("K*{factor}")],
    starts: Annotated[Int32[Tensor, "I"], Between(0, None)],
    lengths: Annotated[Int32[Tensor, "I"], Extent("starts", "max(N, 3)")],
    weights: Annotated[Float[Tensor, "..."], Between(-0.5, 1e20)],
    many: Annotated[list[Float[Tensor, "K _"]], Between(-1.0, None)],
    left: list[Float[Tensor, "... ?A ?A"]],
    right: Annotated[list[Float[Tensor, "?A ?*s"]], Between(None, 9)] | None,
    other: Annotated[list[Float[Tensor, "*?s 2"]], Sorted(first=0)],
    factor: Annotated[int, Between(1, "N")],
    scale: Annotated[float, Between(0.0, 1.5)],
    window: Annotated[tuple[int, int], Between(0, 9)],
    rois: Annotated[Float[Tensor, "R C"], Index("N", column=1)],
    edges: Annotated[list[Int32[Tensor, "_ 2"]], Index("N", column=0), Index(9, column=1)],
    free: Annotated[Sequence[float], Between(None, 2.5)],
) -> Float[Tensor, "*batch N-{window[0]} K//{window[1]}"]: ...


@pytest.fixture(scope="module")
def operator(build):
    return build(bound)


def correct(dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    return {
        "x": torch.zeros(2, 3, 4, dtype=dtype),
        "y": torch.zeros(2, 5, dtype=dtype),
        "indices": torch.tensor([[0, 1], [2, 3], [4, 7]]),
        "starts": torch.tensor([0, 1], dtype=torch.int32),
        "lengths": torch.tensor([3, 0], dtype=torch.int32),
        "weights": torch.tensor([[0.5, -0.5]], dtype=dtype),
        "many": [torch.zeros(4, 1, dtype=dtype), torch.zeros(4, 0, dtype=dtype)],
        "left": [torch.zeros(3, 3, dtype=dtype), torch.zeros(5, 0, 0, dtype=dtype)],
        "right": [torch.zeros(3, dtype=dtype), torch.zeros(0, 6, 7, dtype=dtype)],
        "other": [torch.zeros(2, dtype=dtype), torch.zeros(6, 7, 2, dtype=dtype)],
        "factor": 2,
        "scale": 0.5,
        "window": [1, 2],
        "rois": torch.tensor([[0.5, 2.0, 0.5], [-7.0, 0.0, 9.0]], dtype=dtype),
        "edges": [torch.tensor([[2, 8]], dtype=torch.int32), torch.zeros(0, 2, dtype=torch.int32)],
        "free": [0.1, 2.5],
    }


def outcome(function: Any, arguments: dict[str, Any], kind: Any) -> str | None:
    try:
        function(arguments)
    except kind as error:
        return str(error)
    return None


def both(operator: Any, arguments: dict[str, Any]) -> tuple[str | None, str | None]:
    native = outcome(lambda a: operator(**a), arguments, RuntimeError)
    python = outcome(Validator(operator.signature), arguments, (ArgumentError, ZeroDivisionError))
    return native, python


@pytest.mark.slow
def test_correct_arguments_pass(operator) -> None:
    assert operator(**correct()).shape == (2, 2, 2)
    assert operator(**{**correct(), "y": None, "many": []}).shape == (2, 2, 2)
    assert operator(**{**correct(), "right": None}).shape == (2, 2, 2)
    assert operator(**{**correct(), "left": [], "right": [], "other": []}).shape == (2, 2, 2)


_LAST = torch.tensor([5])
WRONG = {
    "dimension": {"starts": torch.zeros(3, dtype=torch.int32)},
    "rank": {"starts": torch.zeros(2, 2, dtype=torch.int32)},
    "rank at least": {"x": torch.zeros(3)},
    "variadic size": {"y": torch.zeros(3, 5)},
    "variadic rank": {"y": torch.zeros(5)},
    "expression": {"y": torch.zeros(2, 4)},
    "integer": {"indices": torch.zeros(3, 3, dtype=torch.int64)},
    "concrete dtype": {"indices": torch.zeros(3, 2, dtype=torch.int32)},
    "generic dtype": {"x": torch.zeros(2, 3, 4, dtype=torch.int32)},
    "one generic dtype": {"y": torch.zeros(2, 5, dtype=torch.float64)},
    "element of a list": {"many": [torch.zeros(4, 1), torch.zeros(3, 1)]},
    "dtype in a list": {"many": [torch.zeros(4, 1, dtype=torch.float64)]},
    "fewer in a list": {"left": [torch.zeros(3, 3)]},
    "none in a list": {"right": []},
    "more in a list": {"other": [torch.zeros(2)] * 3},
    "size at a place": {"right": [torch.zeros(3), torch.zeros(2, 6, 7)]},
    "size twice at a place": {"left": [torch.zeros(3, 3), torch.zeros(1, 5, 4)]},
    "sizes at a place": {"right": [torch.zeros(3), torch.zeros(0, 7, 6)]},
    "more sizes at a place": {"other": [torch.zeros(1, 2), torch.zeros(6, 7, 2)]},
    "fewer sizes at a place": {"right": [torch.zeros(3), torch.zeros(0)]},
    "length": {"window": [1, 2, 3]},
    "scalar too high": {"factor": 4},
    "scalar too low": {"factor": 0},
    "float": {"scale": 1.7},
    "nan": {"scale": float("nan")},
    "in a tuple": {"window": [1, -1]},
    "in a sequence": {"free": [0.5, 3e16]},
    "index too high": {"indices": torch.tensor([[0, 1], [2, 8], [9, 0]])},
    "index negative": {"indices": torch.tensor([[0, 1], [2, 3], [4, -1]])},
    "one side open": {"starts": torch.tensor([0, -7], dtype=torch.int32)},
    "run too long": {"lengths": torch.tensor([3, 3], dtype=torch.int32)},
    "run negative": {"lengths": torch.tensor([-1, 3], dtype=torch.int32)},
    "float value": {"weights": torch.tensor([0.0, -0.6])},
    "nan value": {"weights": torch.tensor([[0.0], [float("nan")]])},
    "infinite value": {"weights": torch.tensor(float("inf"))},
    "value in a list": {"many": [torch.zeros(4, 1), torch.tensor([[0.0], [-1], [-2], [-3]])]},
    "value in an optional list": {"right": [torch.tensor([0, 9.5, 0]), torch.zeros(0, 6, 7)]},
    "index in a column too high": {"rois": torch.tensor([[0.5, 2.0], [1.0, 3.0]])},
    "index in a column negative": {"rois": torch.tensor([[0.5, -1.0]])},
    "index in a column broken": {"rois": torch.tensor([[0.5, 0.5]])},
    "index in a column nan": {"rois": torch.tensor([[0.5, float("nan")]])},
    "index in a column infinite": {"rois": torch.tensor([[0.5, float("inf")]])},
    "index in a strided column": {"rois": torch.tensor([[0.5, 0.5], [0.0, 1.5]]).t()},
    "no such column": {"rois": torch.zeros(2, 1)},
    "second column in a list": {"edges": [torch.tensor([[2, 9]], dtype=torch.int32)]},
    "order in a list": {"other": [torch.zeros(2), torch.zeros(6, 7, 2).index_fill_(0, _LAST, -1)]},
}


@pytest.mark.parametrize("name", WRONG)
def test_mistakes_have_the_same_words(operator, name: str) -> None:
    native, python = both(operator, {**correct(), **WRONG[name]})
    assert native is not None
    assert native == python


def test_the_words(operator) -> None:
    native, _ = both(operator, {**correct(), "y": torch.zeros(3, 5)})
    assert native == (
        "kernels_test::bound: argument 'y' does not fit Float[Tensor, \"*batch K+1\"]: dimensions "
        "from 0 (*batch) are (3,), expected (2,).\n"
        "  got: shape (3, 5), dtype float32\n"
        "  bound so far: *batch=(2,), N=3, K=4 (*batch by 'x')"
    )
    native, _ = both(operator, {**correct(), "indices": torch.tensor([[0, 1], [2, 8], [9, 0]])})
    assert native == (
        "kernels_test::bound: argument 'indices' has value 8 at index (1, 1), expected "
        "0 <= value < 8 (K*factor).\n  bound so far: *batch=(2,), N=3, K=4, I=2, R=2, C=3"
    )


def test_a_negative_result_size(operator) -> None:
    native, python = both(operator, {**correct(), "window": [9, 1]})
    assert native == python
    assert native is not None
    assert native.startswith(
        'kernels_test::bound: the result Float[Tensor, "*batch N-{window[0]} K//{window[1]}"] '
        "would have -6 as its dimension 'N-window[0]'."
    )


def test_a_division_by_zero_is_an_error(operator) -> None:
    native, _ = both(operator, {**correct(), "window": [1, 0]})
    assert native == "kernels_test::bound: a size is divided by zero"


def test_a_large_tensor_is_scanned_in_pieces(operator) -> None:
    weights = torch.zeros(3_000_000)
    assert operator(**{**correct(), "weights": weights}).shape == (2, 2, 2)
    weights[2_999_999] = -1
    weights[1_500_000] = -2
    native, python = both(operator, {**correct(), "weights": weights})
    assert native == python
    assert native is not None
    assert "value -2.0 at index 1500000" in native


sizes = st.integers(0, 4)
shapes = st.lists(sizes, max_size=4)
numbers = st.floats(width=32) | st.sampled_from([0.1, 1.5, -0.5, 1e16, 1e-5])


@st.composite
def changes(draw: st.DrawFn) -> dict[str, Any]:
    """One to three arguments replaced by something of the right Python type."""
    floats = st.sampled_from([torch.float32, torch.float32, torch.float64, torch.int8])
    integers = st.sampled_from([torch.int32, torch.int64])

    def tensor(dtypes: st.SearchStrategy[torch.dtype]) -> Tensor:
        return torch.full(draw(shapes), draw(st.integers(-1, 9))).to(draw(dtypes))

    changed: dict[str, Any] = {}
    for name in draw(st.lists(st.sampled_from(sorted(correct())), min_size=1, max_size=3)):
        if name in ("x", "y", "weights", "rois"):
            changed[name] = tensor(floats)
        elif name in ("indices", "starts", "lengths"):
            changed[name] = tensor(integers)
        elif name in ("many", "left", "right", "other", "edges"):
            dtypes = integers if name == "edges" else floats
            changed[name] = [tensor(dtypes) for _ in range(draw(st.integers(0, 2)))]
        elif name == "factor":
            changed[name] = draw(st.integers(-2, 5))
        elif name == "scale":
            changed[name] = draw(numbers)
        elif name == "window":
            changed[name] = draw(st.lists(st.integers(-1, 10), min_size=2, max_size=3))
        else:
            changed[name] = draw(st.lists(numbers, max_size=10))
    return changed


@pytest.mark.slow
@settings(max_examples=300)
@given(changed=changes())
@example(changed={"scale": 5e-324})
@example(changed={"scale": 123456789012345680.0})
def test_cpp_and_python_agree_on_anything(operator, changed: dict[str, Any]) -> None:
    arguments = {**correct(), **changed}
    native, python = both(operator, arguments)
    if native is not None and "divided by zero" in native:
        assert python is not None
        return
    assert native == python
