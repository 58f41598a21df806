"""Functions of cases: what checks cannot call is refused where it is registered."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import DeclarationError
from opsmith.checks.cases.subject import registered


@opsmith.op("cases_test::scaled")
def scaled(x: Float[Tensor, "N"], k: float = 2.0) -> Float[Tensor, "N"]:
    return x * k


def nothing() -> Any: ...
def three(dtype: Any, seed: Any, further: Any) -> Any: ...
def by_name(*, dtype: Any, seed: Any) -> Any: ...


@pytest.mark.parametrize("function", [nothing, three, by_name])
def test_a_function_that_takes_no_dtype_and_seed_is_refused_where_it_is_registered(
    function: Callable[..., Any],
) -> None:
    words = (
        r"^cases_test::scaled: register_cases: .*test_registered_cases\.py:\d+: the function is "
        r"called with a dtype and a seed, but it does not take these: .*\. "
        rf"Write {function.__name__}\(dtype, seed\)\.$"
    )
    with pytest.raises(DeclarationError, match=words):
        scaled.register_cases(function)
    assert scaled.cases == []


@pytest.mark.parametrize("case", [(torch.ones(2), 3.0), torch.ones(2), None])
def test_a_case_without_names_is_refused_with_the_form_to_write(
    case: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaled, "cases", [])
    scaled.register_cases(lambda dtype, seed: [case])
    words = re.escape(f"a case is of type {type(case).__name__}, expected a dictionary of argument")
    with pytest.raises(DeclarationError, match=words):
        list(registered(scaled, "float32", 0))


def test_a_function_with_more_that_has_a_default_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scaled, "cases", [])
    scaled.register_cases(lambda dtype, seed, k=3.0: [{"x": torch.ones(2, dtype=dtype), "k": k}])
    (case,) = registered(scaled, "float32", 0)
    assert case["k"] == 3.0
