"""What a declaration or a call is answered with stands whole on a page, and is said so."""

from __future__ import annotations

from pathlib import Path

import declarations
import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize(("line", "said"), declarations.cases(HERE / "declarations.md"))
def test_a_mistake_is_said_in_these_words(line: str, said: str) -> None:
    assert declarations.message_of(line) == f"ns::f: {said}"


@pytest.mark.parametrize(("line", "call", "outcome"), declarations.cases(HERE / "calls.md"))
def test_a_call_binds_this_or_is_refused_in_these_words(line: str, call: str, outcome: str) -> None:
    assert declarations.outcome_of(line, call) == outcome


@pytest.mark.parametrize(("line", "batched", "said"), declarations.cases(HERE / "folds.md"))
def test_a_batch_lies_where_each_slice_is_computed_alone(
    line: str, batched: str, said: str
) -> None:
    assert declarations.fold_of(line, batched) == said


@pytest.mark.parametrize(
    "word",
    "Index Between Positive Extent Sorted Total Starts Unspecified Selects Philox "
    "NonDifferentiable where mutates_args data_dependent parallel_dims summed_dims "
    "linear_in DtypeVar Float out list[ ?N ?*S K*G N//2".split(),
)
def test_a_word_that_is_misused_is_refused_by_its_name(word: str) -> None:
    cases = declarations.cases(HERE / "declarations.md")
    assert [line for line, said in cases if word in line and word in said]
