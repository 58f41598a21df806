"""Binding a call: what fits binds, and what does not is said with what was bound so far."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from hypothesis import given, strategies as st
from jaxtyping import Float, Int32
from torch import Tensor

from opsmith import ArgumentError, Between
from opsmith.signature import TensorInfo, bind, result_shapes, signature_of


def pool(
    depth: Float[Tensor, "B N H"],
    feat: Float[Tensor, "B N C"],
    ranks: Int32[Tensor, "P"],
    both: Float[Tensor, "N+C"] | None,
    rest: list[Float[Tensor, "C ..."]],
    size: tuple[int, int],
    k: Annotated[int, Between(0, "C")],
) -> Float[Tensor, "B {size[0]*2} C-1"]: ...  # type: ignore[empty-body]


SIGNATURE = signature_of(pool, "ns::pool")


def call(**changes: Any) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "depth": TensorInfo((2, 3, 4), "float32"),
        "feat": TensorInfo((2, 3, 5), "float32"),
        "ranks": TensorInfo((7,), "int32"),
        "both": TensorInfo((8,), "float32"),
        "rest": [TensorInfo((5,), "float32"), TensorInfo((5, 1, 1), "float32")],
        "size": (6, 7),
        "k": 1,
    }
    return {**arguments, **changes}


def test_a_call_that_fits_binds_every_name() -> None:
    arguments = call()
    bindings = bind(SIGNATURE, arguments)
    assert bindings.text() == "B=2, N=3, H=4, C=5, P=7"
    assert bindings.dtype == "float32"
    assert result_shapes(SIGNATURE, bindings, arguments) == [(2, 12, 4)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"feat": TensorInfo((2, 9, 5), "float32")},
            "ns::pool: argument 'feat' does not fit Float[Tensor, \"B N C\"]: dimension 1 (N) is "
            "9, expected 3.\n  got: shape (2, 9, 5), dtype float32\n"
            "  bound so far: B=2, N=3, H=4 (N by 'depth')",
        ),
        (
            {"feat": TensorInfo((2, 3), "float32")},
            "ns::pool: argument 'feat' has 2 dimensions, expected 3 for Float[Tensor, \"B N C\"].\n"
            "  got: shape (2, 3), dtype float32\n  bound so far: B=2, N=3, H=4",
        ),
        (
            {"ranks": TensorInfo((7,), "int64")},
            "ns::pool: argument 'ranks' has dtype int64, expected int32.\n"
            "  got: shape (7,), dtype int64\n  bound so far: B=2, N=3, H=4, C=5",
        ),
        (
            {"feat": TensorInfo((2, 3, 5), "float64")},
            "ns::pool: argument 'feat' has dtype float64, expected float32: every Float tensor of "
            "a call has one dtype, and 'depth' fixed it.\n"
            "  got: shape (2, 3, 5), dtype float64\n  bound so far: B=2, N=3, H=4",
        ),
        (
            {"depth": TensorInfo((2, 3, 4), "int32")},
            "ns::pool: argument 'depth' has dtype int32, expected one of float16, bfloat16, "
            "float32, float64.\n  got: shape (2, 3, 4), dtype int32",
        ),
        (
            {"feat": TensorInfo((2, 3, 5), "float32", "cuda:0")},
            "ns::pool: argument 'feat' is on cuda:0, expected cpu: every tensor of a call is on "
            "one device, and 'depth' fixed it.\n  bound so far: B=2, N=3, H=4",
        ),
        (
            {"both": TensorInfo((9,), "float32")},
            "ns::pool: argument 'both' does not fit Float[Tensor, \"N+C\"]: dimension 0 (N+C) is "
            "9, expected 8.\n  got: shape (9,), dtype float32\n"
            "  bound so far: B=2, N=3, H=4, C=5, P=7",
        ),
        (
            {"rest": [TensorInfo((5,), "float32"), TensorInfo((), "float32")]},
            "ns::pool: argument 'rest[1]' has 0 dimensions, expected at least 1 for "
            'Float[Tensor, "C ..."].\n  got: shape (), dtype float32\n'
            "  bound so far: B=2, N=3, H=4, C=5, P=7",
        ),
        ({"size": (6,)}, "ns::pool: argument 'size' has 1 elements, expected 2."),
        (
            {"k": 6},
            "ns::pool: argument 'k' is 6, expected 0 <= value <= 5 (C).\n"
            "  bound so far: B=2, N=3, H=4, C=5, P=7",
        ),
    ],
)
def test_what_does_not_fit_is_said(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        bind(SIGNATURE, call(**changes))
    assert str(caught.value) == message


def test_a_result_of_negative_size_is_refused() -> None:
    arguments = call(feat=TensorInfo((2, 3, 0), "float32"), both=None, rest=[], k=0)
    bindings = bind(SIGNATURE, arguments)
    with pytest.raises(ArgumentError, match=r"would have -1 as its dimension 'C-1'"):
        result_shapes(SIGNATURE, bindings, arguments)


sizes = st.integers(0, 5)


@given(st.lists(sizes, max_size=3), st.lists(sizes, max_size=3), sizes)
def test_a_variadic_name_stands_for_the_same_sizes_everywhere(
    first: list[int], second: list[int], last: int
) -> None:
    def f(x: Float[Tensor, "*s N"], y: Float[Tensor, "*s N"]) -> Float[Tensor, "N *s"]: ...  # type: ignore[empty-body]

    signature = signature_of(f, "ns::f")
    arguments = {
        "x": TensorInfo((*first, last), "float32"),
        "y": TensorInfo((*second, last), "float32"),
    }
    if first == second:
        bindings = bind(signature, arguments)
        assert result_shapes(signature, bindings, arguments) == [(last, *first)]
    else:
        with pytest.raises(ArgumentError, match=r"\(\*s\) are"):
            bind(signature, arguments)
