"""Compare what a compiled kernel says of wrong arguments with what Python says."""

from typing import Any

import pytest

from opsmith import ArgumentError, Operator
from opsmith.operators.core.validation import Validator


def assert_same_words(operator: Operator, arguments: dict[str, Any]) -> None:
    """Require that a call in C++ and the validation in Python refuse in the same words."""
    with pytest.raises(RuntimeError) as native:
        operator(**arguments)
    with pytest.raises(ArgumentError) as python:
        Validator(operator.signature)(arguments)
    assert str(native.value) == str(python.value)
