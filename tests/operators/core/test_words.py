"""What validation in Python, and what a call that PyTorch refused, is answered with."""

from __future__ import annotations

from pathlib import Path

import declarations
import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize(("line", "call", "said"), declarations.cases(HERE / "values.md"))
def test_validation_says_this_of_values(line: str, call: str, said: str) -> None:
    assert declarations.values_of(line, call) == said


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(("line", "call", "said"), declarations.cases(HERE / "wrong_arguments.md"))
def test_an_argument_of_the_wrong_kind_is_said(line: str, call: str, said: str) -> None:
    assert declarations.refusal_of(line, call) == said
