"""A choice of strings is an enum to C++; a list fixes sizes and dtype by its elements."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from opsmith import DeclarationError
from opsmith.errors import ArgumentError
from opsmith.kernels import kernel_source
from opsmith.operators.core.validation import Validator
from opsmith.signature import signature_of

pytestmark = pytest.mark.slow  # one library; test_messages.py has one among the quick tests


def reduce_all(
    xs: list[Float[Tensor, "N C"]],
    bias: Float32[Tensor, ""],
    mode: Literal["sum", "mean.", "max"] = "sum",
    scaling: Literal["by 2", "none"] | None = None,
) -> Float[Tensor, "N C"]: ...


B = torch.zeros(())


@pytest.fixture(scope="module")
def operator(build):
    return build(reduce_all)


def test_a_kernel_switches_over_the_choices(operator) -> None:
    xs = [torch.randn(2, 3) for _ in range(3)]
    stacked = torch.stack(xs)
    torch.testing.assert_close(operator(xs, B), stacked.sum(0))
    torch.testing.assert_close(operator(xs, B, "mean."), stacked.mean(0))
    torch.testing.assert_close(operator(xs, B, mode="max"), stacked.amax(0))
    torch.testing.assert_close(operator(xs, B, scaling="by 2"), 2 * stacked.sum(0))
    torch.testing.assert_close(operator(xs, B, scaling="none"), stacked.sum(0))


def test_elements_of_a_list_fix_sizes_and_dtype(operator) -> None:
    xs = [torch.ones(4, 0, dtype=torch.float64)]
    result = operator(xs, B)
    assert result.shape == (4, 0)
    assert result.dtype == torch.float64
    assert operator.signature.certain_dims == {"N", "C"}


X = torch.ones(2, 3)
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "another string": (
        {"mode": "median"},
        "argument 'mode' is 'median', expected one of 'sum', 'mean.', 'max'.",
    ),
    "an empty string": (
        {"scaling": ""},
        "argument 'scaling' is '', expected one of 'by 2', 'none'.",
    ),
    "an empty list": (
        {"xs": []},
        "argument 'xs' has no tensors, expected at least one: nothing else fixes N and C and the "
        "dtype.",
    ),
    "elements of two sizes": (
        {"xs": [X, torch.ones(3, 3)]},
        "argument 'xs[1]' does not fit Float[Tensor, \"N C\"]: dimension 0 (N) is 3, expected 2.",
    ),
    "elements of two dtypes": (
        {"xs": [X, X.double()]},
        "argument 'xs[1]' has dtype float64, expected float32: every Float tensor of a call has "
        "one dtype, and 'xs[0]' fixed it.",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_said_in_the_same_words(operator, name: str) -> None:
    changed, said = WRONG[name]
    arguments = {"xs": [X], "bias": B, "mode": "sum", "scaling": None, **changed}
    with pytest.raises(RuntimeError) as native:
        operator(**arguments)
    with pytest.raises(ArgumentError) as python:
        Validator(operator.signature)(arguments)
    assert str(native.value).splitlines()[0] == f"kernels_test::reduce_all: {said}"
    # Quotes around a list's element differ between the two.
    assert str(native.value) == str(python.value)


def test_a_list_may_be_empty_where_nothing_depends_on_it() -> None:
    def f(x: Float[Tensor, "N"], ys: list[Float[Tensor, "N K"]]) -> Float[Tensor, "N"]: ...

    assert signature_of(f, "ns::f").nonempty == {}


def test_only_what_nothing_else_fixes_asks_for_an_element() -> None:
    def f(
        ys: list[Float[Tensor, "N K 2*K"]], zs: list[Int64[Tensor, "M"]], x: Float[Tensor, "N"]
    ) -> Float[Tensor, "N M"]: ...

    assert signature_of(f, "ns::f").nonempty == {"zs": ("M",)}


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        (Literal["a-b", "a_b"], "the strings become a_b, a_b, and two of them are the same"),
        (Literal["", "empty"], "the strings become empty, empty"),
    ],
)
def test_strings_that_cannot_be_told_apart_in_cpp_are_refused(annotation: Any, said: str) -> None:
    def f(x: Tensor, mode: Any) -> Tensor: ...

    f.__annotations__ = {"x": Tensor, "mode": annotation, "return": Tensor}
    with pytest.raises(DeclarationError, match="parameter 'mode: Literal") as caught:
        kernel_source(signature_of(f, "ns::f"), "cpu", Path("f.cpp"))
    assert said in str(caught.value)
