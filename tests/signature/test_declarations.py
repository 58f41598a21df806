"""What is wrong with a declaration is said in the words of declarations.md, every one of them."""

from __future__ import annotations

import declarations
import pytest


@pytest.mark.parametrize(("line", "said"), declarations.cases())
def test_a_mistake_is_said_in_these_words(line: str, said: str) -> None:
    assert declarations.message_of(line) == f"ns::f: {said}"
