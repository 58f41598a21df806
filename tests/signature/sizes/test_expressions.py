"""An expression means the same to Python and to a message."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from opsmith.signature.sizes import expressions
from opsmith.signature.sizes.expressions import (
    Binary,
    Call,
    Expression,
    ExpressionError,
    Integer,
    Name,
    Scalar,
)

_leaves = st.one_of(
    st.integers(-3, 9).map(Integer),
    st.sampled_from("BNC").map(Name),
    st.just(Scalar("k")),
    st.integers(0, 1).map(lambda index: Scalar("size", index)),
)
trees = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.builds(Binary, st.sampled_from(["+", "-", "*"]), inner, inner),
        st.builds(
            Binary, st.sampled_from(["//", "%"]), inner, inner.filter(lambda one: one != Integer(0))
        ),
        st.builds(
            Call,
            st.sampled_from(["min", "max"]),
            st.lists(inner, min_size=1, max_size=3).map(tuple),
        ),
    ),
    max_leaves=8,
)
DIMS = {"B": 7, "N": 3, "C": 64}
SCALARS = {"k": -5, "size": (2, 11)}


@given(trees)
def test_text_reads_back_to_the_same_value(tree: Expression) -> None:
    again = expressions.parse(expressions.text(tree), SCALARS)
    try:
        value = expressions.evaluate(tree, DIMS, SCALARS)
    except ZeroDivisionError:
        with pytest.raises(ZeroDivisionError):
            expressions.evaluate(again, DIMS, SCALARS)
    else:
        assert expressions.evaluate(again, DIMS, SCALARS) == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("N/2", "uses an operator that sizes do not have"),
        ("N and 2", "is not an integer"),
        ("N.real", "is not an integer"),
        ("sum(N)", "is not an integer"),
        ("N +", "is not an expression"),
        ("{N", "has a { that is not closed"),
        ("{unknown}", "{unknown} names no int argument"),
        ("unknown[0]", "unknown[0] names no sequence argument"),
        ("size[-1]", "'size[-1]' is not an integer"),
        ("1.5", "is not an integer"),
        ("True", "is not an integer"),
    ],
)
def test_anything_else_is_refused(text: str, said: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        expressions.parse(text, SCALARS)
    assert said in str(caught.value)
