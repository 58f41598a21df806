"""A call's arguments find their names, and one that cannot is refused."""

from __future__ import annotations

from typing import Any

import declarations
import pytest

from opsmith import ArgumentError
from opsmith.signature.calls import named

LINE = "f(x: Tensor, k: int = 2, *, s: float = 0.5, t: int, u: bool = True) -> Tensor"


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        ((1, 3), {"t": 4}, {"x": 1, "k": 3, "s": 0.5, "t": 4, "u": True}),
        ((1,), {"t": 4, "s": 1.5}, {"x": 1, "k": 2, "s": 1.5, "t": 4, "u": True}),
        ((), {"t": 4, "k": None, "x": 0}, {"x": 0, "k": None, "s": 0.5, "t": 4, "u": True}),
    ],
)
def test_arguments_are_named_in_order_and_defaults_filled_in(
    args: tuple[Any, ...], kwargs: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert list(named(declarations.declared(LINE))(args, kwargs).items()) == list(expected.items())


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        ((1, 2, 3, 4, 5, 6), {}, "takes 5 arguments, got 6."),
        ((1, 2, 3, 4), {}, "argument 's' must be given by name: s=..."),
        ((1, 2, 3), {}, "argument 's' must be given by name: s=..."),
        ((1,), {"v": 2}, "has no argument 'v'; there are x, k, s, t, u."),
        ((1, 2), {"k": 2, "t": 1}, "argument 'k' is given twice."),
        ((1, 2), {}, "argument 't' is missing."),
        ((), {}, "argument 'x' is missing."),
    ],
)
def test_a_call_that_names_them_wrongly_is_refused(
    args: tuple[Any, ...], kwargs: dict[str, Any], said: str
) -> None:
    with pytest.raises(ArgumentError) as caught:
        named(declarations.declared(LINE))(args, kwargs)
    assert str(caught.value) == f"ns::f: {said}"
